// The operations by which solve_gromov() searches, on a problem of points or of matrices (docs/math.md, section 21).
#pragma once
#include <optional>
#include <vector>

#include <monge/gromov.hpp>

#include "core/numbers.hpp"
#include "geometry/validation.hpp"
#include "gromov/matrix.hpp"
#include "seam/backend.hpp"

namespace monge {

struct StartingPoint {
  GromovStartKind kind;
  DenseMatrix image;
  double value = kInfinity;  // alpha E + (1 - alpha) <M, .> of its plan, where it is known.
  bool is_plan = false;      // Whether the image has the plan.
};

/// A lower bound of alpha E + (1 - alpha) <M, .> and, where it is the cost of a plan, a start from the plan.
struct GromovBound {
  double value = 0;
  std::optional<DenseMatrix> start;
};

struct GromovValue {
  DenseMatrix image;
  double quadratic = 0;  // E(P)
  double linear = 0;     // <M, P>
};

/// The terms of an objective with open marginals at a plan.
struct UnbalancedTerms {
  double mass = 0;
  double value = 0;       // alpha E + (1 - alpha) <M, P>
  double divergence = 0;  // penalty_a sum p log(p / a) + penalty_b sum q log(q / b) + eps sum P log(P / a b^T)
};

/// The convex hull of the corners and their opposites, which holds the images of all plans, but for parts that change
/// no value by more than `left_out`. The curvature of an image A is factor |A|^2.
struct ImagePolytope {
  double factor = 0, left_out = 0;
  DenseMatrix origin;
  std::vector<DenseMatrix> corners;
};

/// Where the search begins, and how far it may be from the optimum.
class GromovBounds {
 public:
  virtual ~GromovBounds() = default;

  /// `watched`: options of exact problems. Once their progress function has answered false, the result has no meaning.
  virtual GromovBound bound(Context const& context, ExactOptions const& watched) const = 0;
  /// By the distributions of the distances from each point (Memoli's third bound). Takes an exact plan.
  virtual GromovBound descriptor_bound(Context const& context, ExactOptions const& watched) const = 0;
  /// The starts that the options ask for. `described` is the start from the descriptors, if it is known.
  virtual std::vector<StartingPoint> starts(Context const& context, GromovOptions const& options,
                                            std::optional<DenseMatrix> const& described) const = 0;

  /// Nothing for problems without branch and bound. Throws unsupported where it would take too long.
  virtual std::optional<ImagePolytope> polytope() const { return {}; }
};

class GromovDerivatives {
 public:
  virtual ~GromovDerivatives() = default;

  virtual void gradients(Gromov const& result, GromovGradients const& out) const = 0;
};

/// The part of a problem of points that extends its costs to other points.
class GromovFeatures {
 public:
  virtual ~GromovFeatures() = default;

  virtual void source_features(Backend const& backend, Gromov const& result, MatrixView points, MatrixView features,
                               MutableMatrixView out) const = 0;
};

/// The part of a problem with open marginals that an image determines.
class OpenObjective {
 public:
  virtual ~OpenObjective() = default;

  virtual UnbalancedTerms terms_of(DenseMatrix const& image) const = 0;
  /// The image of the plan times a factor.
  virtual DenseMatrix scaled(DenseMatrix const& image, double factor) const = 0;
  /// Changes the u and v of a linearisation so that its costs grow by r_i + c_j. The costs of linearise() do not have
  /// UnbalancedTerms::divergence in the proximal method.
  virtual void add_terms(DenseVector const& r, DenseVector const& c, DenseMatrix& u, DenseMatrix& v) const = 0;
};

/// The objective of plans with the marginals a and b. Its quadratic part depends on the image of a plan, a matrix that
/// is linear in the plan. For the costs C of a linearisation at the image A and a plan P with the image G,
///   value(P) = constant + <C, P> + curvature(A) - curvature(A - G).
class GromovProblem : public GromovBounds, public GromovDerivatives {
 public:
  /// The weights of the linear problems.
  DenseVector const& a() const { return a_; }
  DenseVector const& b() const { return b_; }
  double alpha() const { return alpha_; }
  /// The mass of the starts and, unless it is unbalanced, of every plan.
  double total() const { return total_; }
  /// Whether partial plans have all of the mass of both sides, and so the marginals a and b.
  bool is_whole() const;
  double constant() const { return constant_; }
  /// The largest size of a term of the value, by which its rounding errors are judged.
  double size() const { return size_; }
  /// No plan has a value below it.
  double least() const { return least_; }
  /// The largest norm that an image may have.
  double largest() const { return largest_; }
  /// Whether the curvature is nowhere negative: then no full step raises the objective.
  bool is_concave() const { return concave_; }
  /// In messages.
  char const* image_name() const { return image_name_; }
  double value(GromovValue const& of) const { return alpha_ * of.quadratic + (1 - alpha_) * of.linear; }

  /// The costs of the linearisation at an image, but for terms of i or of j alone: C_ij = -<u_i, v_j>, or, where v is
  /// empty, C = u.
  virtual void linearise(DenseMatrix const& image, DenseMatrix& u, DenseMatrix& v) const = 0;
  virtual double curvature(DenseMatrix const& image) const = 0;
  virtual double norm(DenseMatrix const& image) const = 0;
  /// Gromov::cross_moment.
  virtual DenseMatrix start_of(DenseMatrix const& image) const = 0;
  /// The image of P as it is, in the precision of its products.
  virtual DenseMatrix image_of(Plan const& plan) const = 0;
  /// The value of P after its rows and columns were moved to the marginals a and b. Writes P 1 and P^T 1 of P as it is.
  virtual GromovValue value_of(Plan const& plan, DenseVector& row, DenseVector& column) const = 0;
  virtual GromovValue value_of(ExactPlan const& plan) const = 0;

  /// Null where the marginals are constraints.
  virtual OpenObjective const* open() const { return nullptr; }
  /// Null for matrices.
  virtual GromovFeatures const* features() const { return nullptr; }

 protected:
  /// Reads the weights.
  GromovProblem(Backend const& backend, Shape shape, VectorView a, VectorView b, GromovOptions const& options);

  bool is_unbalanced() const { return marginals_ == GromovMarginals::unbalanced; }
  /// Throws for derivatives by weights where marginals are open.
  void refuse_weights(GromovGradients const& out) const;

  GromovMarginals marginals_;
  double penalty_a_, penalty_b_;
  bool is_proximal_;
  double eps_;  // eps of the objective: 0 by the proximal method.
  DenseVector a_, b_;
  DenseVector first_a_, first_b_;  // Marginals of the starts.
  double alpha_ = 1, total_ = 1, constant_ = 0, size_ = 0, least_ = 0, largest_ = 0;
  bool concave_ = true;
  char const* image_name_ = "cross moment";
};

/// The starts of a problem, up to the number that the options ask for.
struct StartList {
  StartList(GromovOptions const& options, bool has_given)
      : most(options.starts > 0 ? to_size(options.starts)
             : has_given        ? 1
                                : SIZE_MAX) {}
  bool is_full() const { return starts.size() >= most; }
  template <class Make>
  void add(GromovStartKind kind, Make const& make) {
    if (!is_full()) starts.push_back({kind, make()});
  }

  std::size_t most;
  std::vector<StartingPoint> starts;
};

/// Features of both sides: none, or n x r and m x r.
void validate_features(MatrixView s, MatrixView t, std::int64_t n, std::int64_t m, Device context);
/// The values of a matrix, which must be finite; `entries` is their name in the message.
DenseMatrix read_finite(char const* field, Backend const& backend, MatrixView view,
                        char const* entries = "coordinates");
/// GromovOptions::cross_moment, of this shape; empty if there is none.
std::optional<DenseMatrix> read_start(Backend const& backend, GromovOptions const& options, std::int64_t rows,
                                      std::int64_t columns);
/// The factor that brings `mass` to at most `weight`.
inline constexpr auto factor_to = [](double weight, double mass) { return mass > weight ? weight / mass : 1.0; };
/// sum p log(p / w)
double relative_entropy(DenseVector const& p, DenseVector const& weights);
/// Writes to a view in host memory.
void write(DenseMatrix const& from, MutableMatrixView to);
/// Calls visit(i, j, P_ij) for each entry.
template <class Visit>
void for_each_entry(ExactPlan const& plan, Visit const& visit) {
  for (std::int64_t i = 0; i < plan.rows(); ++i)
    for (std::int64_t e = plan.row_begin[to_size(i)]; e < plan.row_begin[to_size(i + 1)]; ++e)
      visit(i, plan.column_indices[to_size(e)], plan.values[to_size(e)]);
}

}  // namespace monge
