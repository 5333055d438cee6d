#include "assignment.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <limits>
#include <memory>
#include <monge/assignment.hpp>
#include <span>
#include <vector>

#include "arrays.hpp"
#include "session.hpp"

namespace monge::python {
namespace {

/// `costs` is an array (B, n, m), or a list of matrices without `rows` and `columns`.
void assign(std::shared_ptr<Session> const& session, nb::handle costs, nb::handle row_indices,
            nb::handle column_indices, nb::handle status, bool maximize, nb::handle rows, nb::handle columns) {
  Array const to_rows = out("row_indices", row_indices), to_columns = out("column_indices", column_indices);
  Array const to_status = out("status", status);
  AssignmentOutput const to{to_rows.out_indices(), to_columns.out_indices(), to_status.out_indices()};
  Array const of_rows("rows", rows), of_columns("columns", columns);
  AssignmentOptions const options{maximize, of_rows.indices(), of_columns.indices()};
  if (!nb::isinstance<nb::list>(costs)) {
    Array const array("cost_matrix", costs);
    BatchView const batch = array.batch(std::numeric_limits<int>::max());
    session->run([&](Context const& context) { linear_sum_assignment(context, batch, to, options); });
    return;
  }
  std::vector<Array> arrays;
  std::vector<MatrixView> matrices;
  for (nb::handle const cost : costs) matrices.push_back(arrays.emplace_back("cost_matrix", cost).matrix());
  session->run([&](Context const& context) {
    linear_sum_assignment(context, std::span<MatrixView const>(matrices), to, options);
  });
}

}  // namespace

void bind_assignment(nb::module_& module) {
  module.def("linear_sum_assignment", &assign, nb::arg("session"), nb::arg("costs"), nb::arg("row_indices"),
             nb::arg("column_indices"), nb::arg("status"), nb::arg("maximize"), nb::arg("rows").none(),
             nb::arg("columns").none());
}

}  // namespace monge::python
