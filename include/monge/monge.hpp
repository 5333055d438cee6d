// Everything a user of Monge needs.
#pragma once
#include <monge/array.hpp>
#include <monge/batch.hpp>
#include <monge/c_transform.hpp>
#include <monge/context.hpp>
#include <monge/derivatives.hpp>
#include <monge/divergence.hpp>
#include <monge/entropic.hpp>
#include <monge/error.hpp>
#include <monge/geometry.hpp>
#include <monge/names.hpp>
#include <monge/options.hpp>
#include <monge/plan.hpp>
#include <monge/projection.hpp>
#include <monge/regularized.hpp>
#include <monge/report.hpp>
#include <monge/solver.hpp>
