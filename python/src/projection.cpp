#include "projection.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <monge/projection.hpp>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "options.hpp"
#include "session.hpp"

namespace monge::python {
namespace {

using SessionPointer = std::shared_ptr<Session>;

constexpr auto kProjectionOptions = [](auto& options, auto&& visit) { visit_projection_options(options, visit); };

/// Options and the marginals that they point to. Parsed once, used by many calls.
class HeldOptions {
 public:
  HeldOptions(std::string const& preset, OptionDict const& given, nb::handle row_marginal, nb::handle column_marginal)
      : rows_("row_marginal", row_marginal), columns_("column_marginal", column_marginal) {
    if (!preset.empty()) options_ = projection_preset(preset);
    set_options(options_, given, kProjectionOptions);
    options_.row_marginal = rows_.vector();
    options_.column_marginal = columns_.vector();
  }

  ProjectionOptions const& options() const { return options_; }

 private:
  Array rows_, columns_;
  ProjectionOptions options_;
};

void forward(SessionPointer const& session, nb::handle logits, nb::handle to, HeldOptions const& options) {
  Array const from("logits", logits), result = out("out", to);
  BatchView const in = from.batch();
  MutableBatchView const view = result.out_batch();
  session->run([&](Context const& context) { project(context, in, view, options.options()); });
}

void backward(SessionPointer const& session, nb::handle logits, nb::handle d_out, nb::handle d_logits,
              nb::handle d_dustbin_score, HeldOptions const& options) {
  Array const from("logits", logits), gradient("d_out", d_out);
  Array const to = out("d_logits", d_logits), to_score = out("d_dustbin_score", d_dustbin_score);
  BatchView const in = from.batch(), of = gradient.batch();
  MutableBatchView const view = to.out_batch();
  MutableVectorView const score = to_score.out_vector();
  session->run([&](Context const& context) { project_backward(context, in, of, view, options.options(), score); });
}

std::pair<std::vector<float>, std::vector<float>> marginals(SessionPointer const& session, int rows, int columns,
                                                            HeldOptions const& options) {
  ProjectionMarginals const found = session->run(
      [&](Context const& context) { return projection_marginals(context, rows, columns, options.options()); });
  return {found.rows, found.columns};
}

MhcOptions mhc_options(HeldOptions const& options, double pre_epsilon, double post_factor) {
  return {.projection = options.options(), .pre_epsilon = pre_epsilon, .post_factor = post_factor};
}

void mhc_forward(SessionPointer const& session, nb::handle mixes, nb::handle scale, nb::handle base, nb::handle pre,
                 nb::handle post, nb::handle res, HeldOptions const& options, double pre_epsilon, double post_factor) {
  Array const of_mixes("mixes", mixes), of_scale("scale", scale), of_base("base", base);
  Array const to_pre = out("pre", pre), to_post = out("post", post), to_res = out("res", res);
  MatrixView const in = of_mixes.matrix();
  VectorView const scales = of_scale.vector(), bases = of_base.vector();
  MutableMatrixView const pres = to_pre.out_matrix(), posts = to_post.out_matrix();
  MutableBatchView const residuals = to_res.out_batch();
  MhcOptions const all = mhc_options(options, pre_epsilon, post_factor);
  session->run([&](Context const& context) { mhc_mapping(context, in, scales, bases, pres, posts, residuals, all); });
}

void mhc_backward(SessionPointer const& session, nb::handle mixes, nb::handle scale, nb::handle base, nb::handle d_pre,
                  nb::handle d_post, nb::handle d_res, nb::handle d_mixes, nb::handle d_scale, nb::handle d_base,
                  HeldOptions const& options, double pre_epsilon, double post_factor) {
  Array const of_mixes("mixes", mixes), of_scale("scale", scale), of_base("base", base);
  Array const by_pre("d_pre", d_pre), by_post("d_post", d_post), by_res("d_res", d_res);
  Array const to_mixes = out("d_mixes", d_mixes), to_scale = out("d_scale", d_scale), to_base = out("d_base", d_base);
  MatrixView const in = of_mixes.matrix(), pres = by_pre.matrix(), posts = by_post.matrix();
  VectorView const scales = of_scale.vector(), bases = of_base.vector();
  BatchView const residuals = by_res.batch();
  MutableMatrixView const mixes_out = to_mixes.out_matrix();
  MutableVectorView const scale_out = to_scale.out_vector(), base_out = to_base.out_vector();
  MhcOptions const all = mhc_options(options, pre_epsilon, post_factor);
  session->run([&](Context const& context) {
    mhc_mapping_backward(context, in, scales, bases, pres, posts, residuals, mixes_out, scale_out, base_out, all);
  });
}

}  // namespace

void bind_projection(nb::module_& module) {
  module.def("projection_option_list", [] { return option_list<ProjectionOptions>(kProjectionOptions); });
  module.def("projection_presets", [] {
    std::vector<std::string> names;
    names.reserve(std::size(kNames<ProjectionPreset>));
    for (auto const& preset : kNames<ProjectionPreset>) names.emplace_back(preset.name);
    return names;
  });
  nb::class_<HeldOptions>(module, "ProjectionOptions", "Options of a projection: a preset, and what differs from it.")
      .def(nb::init<std::string const&, OptionDict const&, nb::handle, nb::handle>(), nb::arg("preset"),
           nb::arg("options"), nb::arg("row_marginal").none(), nb::arg("column_marginal").none())
      .def_prop_ro("dustbin", [](HeldOptions const& held) { return held.options().dustbin; });
  module.def("project", &forward, nb::arg("session"), nb::arg("logits"), nb::arg("out"), nb::arg("options"));
  module.def("project_backward", &backward, nb::arg("session"), nb::arg("logits"), nb::arg("d_out"),
             nb::arg("d_logits"), nb::arg("d_dustbin_score").none(), nb::arg("options"));
  module.def("projection_marginals", &marginals, nb::arg("session"), nb::arg("rows"), nb::arg("columns"),
             nb::arg("options"));
  module.def("mhc_mapping", &mhc_forward, nb::arg("session"), nb::arg("mixes"), nb::arg("scale"), nb::arg("base"),
             nb::arg("pre"), nb::arg("post"), nb::arg("res"), nb::arg("options"), nb::arg("pre_epsilon"),
             nb::arg("post_factor"));
  module.def("mhc_mapping_backward", &mhc_backward, nb::arg("session"), nb::arg("mixes"), nb::arg("scale"),
             nb::arg("base"), nb::arg("d_pre"), nb::arg("d_post"), nb::arg("d_res"), nb::arg("d_mixes"),
             nb::arg("d_scale"), nb::arg("d_base"), nb::arg("options"), nb::arg("pre_epsilon"), nb::arg("post_factor"));
}

}  // namespace monge::python
