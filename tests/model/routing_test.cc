// The router against float64 golden values and hand-computed cases.
#include "model/routing.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "golden.h"

namespace rr::model {

namespace {

constexpr std::int64_t kTokens = 24, kExperts = 16;

RouterShape shape_of(const std::string& kind, std::int64_t k, double scaling) {
  RouterShape shape;
  shape.tokens = kTokens;
  shape.experts = kExperts;
  shape.per_token = k;
  shape.scaling = scaling;
  if (kind == "sigmoid") shape.score = plan::RouterScore::sigmoid;
  shape.pre_softmax = kind == "softmax_before";
  return shape;
}

std::vector<float> dense(const RouterShape& shape, const Routing& routing) {
  std::vector<float> out(static_cast<std::size_t>(shape.tokens * shape.experts));
  for (std::size_t slot = 0; slot < routing.experts.size(); ++slot) {
    const std::size_t token = slot / static_cast<std::size_t>(shape.per_token);
    out[token * static_cast<std::size_t>(shape.experts) +
        static_cast<std::size_t>(routing.experts[slot])] = routing.probabilities[slot];
  }
  return out;
}

// dlogits by central differences of sum(g * probabilities) + losses.
std::vector<double> finite_differences(const RouterShape& shape, std::vector<float> logits,
                                       const std::vector<float>& g) {
  const auto value = [&](const std::vector<float>& at) {
    const Routing r = route(shape, at.data());
    double sum = shape.aux_coefficient * r.load_balancing + shape.z_coefficient * r.z;
    for (std::size_t i = 0; i < g.size(); ++i) {
      sum += static_cast<double>(g[i]) * static_cast<double>(r.probabilities[i]);
    }
    return sum;
  };
  std::vector<double> out;
  for (float& x : logits) {
    const float kept = x, h = 1e-2F;
    x = kept + h;
    const double up = value(logits);
    x = kept - h;
    const double down = value(logits);
    x = kept;
    out.push_back((up - down) / (2.0 * static_cast<double>(h)));
  }
  return out;
}

}  // namespace

TEST_CASE("top-k, probabilities and their gradients agree with megatron-core for every kind") {
  const Golden golden;
  const auto logits = golden.floats("router.logits"), g = golden.floats("router.dprobs");
  // softmax over the chosen equals the renormalised softmax over all.
  const std::pair<const char*, const char*> kinds[] = {
      {"softmax_after", "softmax_after"},
      {"softmax_before", "softmax_before"},
      {"softmax_after", "softmax_before_renormalised"},
      {"sigmoid", "sigmoid"}};
  for (const auto& [ours, theirs] : kinds) {
    for (const std::string suffix : {"k1", "k4", "k4.scaled"}) {
      const std::string name = std::string("router.") + theirs + "." + suffix + ".";
      INFO(name);
      const RouterShape shape =
          shape_of(ours, suffix == "k1" ? 1 : 4, suffix.ends_with("scaled") ? 2.5 : 1.0);
      const Routing routing = route(shape, logits.data());
      CHECK(routing.experts == golden.get<std::int32_t>(name + "indices"));
      CHECK(relative_error(dense(shape, routing), golden.doubles(name + "probs64")) < 1e-6);
      std::vector<float> dprobabilities;
      for (std::size_t slot = 0; slot < routing.experts.size(); ++slot) {
        dprobabilities.push_back(g[slot / static_cast<std::size_t>(shape.per_token) * kExperts +
                                   static_cast<std::size_t>(routing.experts[slot])]);
      }
      std::vector<float> dlogits(logits.size());
      route_backward(shape, routing, logits.data(), dprobabilities.data(), 1.0, dlogits.data());
      const auto want = golden.doubles(name + "dlogits64");
      if (*std::max_element(want.begin(), want.end()) < 1e-12) {
        // One of one: the probability is constant, and float64 leaves only its own rounding.
        CHECK(*std::max_element(dlogits.begin(), dlogits.end()) < 1e-7F);
      } else {
        CHECK(relative_error(dlogits, want) < 1e-6);
      }
    }
  }
}

TEST_CASE("balance losses and their gradients agree with megatron-core") {
  const Golden golden;
  auto logits = golden.floats("router.logits");
  const std::vector<float> no_gradient(kTokens * 4, 0.0F);
  const auto check = [&](const std::string& name, RouterShape shape, double coefficient) {
    INFO(name);
    const Routing routing = route(shape, logits.data());
    const double loss = shape.z_coefficient > 0 ? routing.z : routing.load_balancing;
    const double want = golden.doubles(name + ".loss64")[0];
    CHECK(std::abs(loss * coefficient / want - 1) < 1e-6);
    std::vector<float> dlogits(logits.size());
    route_backward(shape, routing, logits.data(), no_gradient.data(), 1.0, dlogits.data());
    CHECK(relative_error(dlogits, golden.doubles(name + ".dlogits64")) < 1e-6);
    // Scaled like the loss.
    std::vector<float> scaled(logits.size());
    route_backward(shape, routing, logits.data(), no_gradient.data(), 0.25, scaled.data());
    for (float& value : scaled) value *= 4.0F;
    CHECK(relative_error(scaled, dlogits) < 1e-6);
  };
  RouterShape shape = shape_of("softmax_after", 4, 1.0);
  shape.balance = plan::LoadBalance::aux_loss;
  shape.aux_coefficient = 0.01;
  check("aux.softmax", shape, 0.01);
  RouterShape sigmoid = shape;
  sigmoid.score = plan::RouterScore::sigmoid;
  check("aux.sigmoid", sigmoid, 0.01);
  RouterShape z = shape_of("softmax_after", 4, 1.0);
  z.z_coefficient = 0.001;
  check("zloss", z, 0.001);

  // The file's rows are token * B + sequence, ours sequence * S + token.
  const auto reordered = [](const auto& in) {
    auto out = in;
    for (std::size_t b = 0; b < 4; ++b) {
      for (std::size_t t = 0; t < 6; ++t) {
        std::copy_n(&in[(t * 4 + b) * kExperts], kExperts, &out[(b * 6 + t) * kExperts]);
      }
    }
    return out;
  };
  logits = reordered(logits);
  RouterShape sequences = shape;
  sequences.balance = plan::LoadBalance::seq_aux_loss;
  sequences.sequences = 4;
  const Routing routing = route(sequences, logits.data());
  const double want = golden.doubles("aux.per_sequence.loss64")[0];
  CHECK(std::abs(routing.load_balancing * 0.01 / want - 1) < 1e-6);
  std::vector<float> dlogits(logits.size());
  route_backward(sequences, routing, logits.data(), no_gradient.data(), 1.0, dlogits.data());
  CHECK(relative_error(dlogits, reordered(golden.doubles("aux.per_sequence.dlogits64"))) < 1e-6);
}

TEST_CASE("B061: balanced routing has balance loss 1 for every k") {
  for (const std::int64_t k : {1, 2, 4}) {
    RouterShape shape;
    shape.tokens = 8;
    shape.experts = 8;
    shape.per_token = k;
    shape.balance = plan::LoadBalance::aux_loss;
    // Token t prefers experts t, t + 1, ..., by so little that the softmax stays flat.
    std::vector<float> logits(64);
    for (std::size_t t = 0; t < 8; ++t) {
      for (std::size_t i = 0; i < 8; ++i) {
        logits[t * 8 + (t + i) % 8] = 1e-6F * static_cast<float>(8 - i);
      }
    }
    const Routing routing = route(shape, logits.data());
    CHECK(routing.counts == std::vector<std::int64_t>(8, k));
    CHECK(routing.load_balancing == Approx(1.0).epsilon(1e-6));
  }
}

TEST_CASE("B060: the balance loss of one overloaded expert is E, not nearly the uniform value") {
  RouterShape shape;
  shape.tokens = 16;
  shape.experts = 8;
  shape.per_token = 1;
  shape.balance = plan::LoadBalance::aux_loss;
  std::vector<float> logits(128, 0.0F);
  for (std::size_t t = 0; t < 16; ++t) logits[t * 8 + 3] = 30.0F;
  CHECK(route(shape, logits.data()).load_balancing == Approx(8.0).epsilon(1e-6));
}

TEST_CASE("B064: one token, four experts, by hand, with and without renormalisation") {
  const std::vector<float> logits = {std::log(1.0F), std::log(4.0F), std::log(2.0F),
                                     std::log(3.0F)};
  RouterShape shape;
  shape.tokens = 1;
  shape.experts = 4;
  shape.per_token = 2;
  const std::vector<float> g = {0.7F, -0.4F};
  for (const bool pre : {false, true}) {
    shape.pre_softmax = pre;
    const Routing routing = route(shape, logits.data());
    CHECK(routing.experts == std::vector<std::int32_t>{1, 3});
    CHECK(routing.probabilities[0] == Approx(pre ? 0.4 : 4.0 / 7).epsilon(1e-6));
    CHECK(routing.probabilities[1] == Approx(pre ? 0.3 : 3.0 / 7).epsilon(1e-6));
    std::vector<float> dlogits(4);
    route_backward(shape, routing, logits.data(), g.data(), 1.0, dlogits.data());
    // Step 1e-2: error of the differences about 1e-5, of the gradient's size 0.2.
    CHECK(relative_error(dlogits, finite_differences(shape, logits, g)) < 1e-3);
  }
}

TEST_CASE("of equal scores the lower expert index is chosen") {
  RouterShape shape;
  shape.tokens = 1;
  shape.experts = 6;
  shape.per_token = 3;
  const std::vector<float> logits = {1, 2, 2, 0, 2, 1};
  CHECK(route(shape, logits.data()).experts == std::vector<std::int32_t>{1, 2, 4});
  const std::vector<float> flat(6, 0.5F);
  CHECK(route(shape, flat.data()).experts == std::vector<std::int32_t>{0, 1, 2});
}

TEST_CASE("rows sorted by expert list each token once per expert, tokens ascending") {
  RouterShape shape = shape_of("softmax_after", 4, 1.0);
  const Golden golden;
  const auto logits = golden.floats("router.logits");
  const Routing routing = route(shape, logits.data());
  const Permutation p = sort_by_expert(shape, routing);
  std::size_t row = 0;
  for (std::int64_t e = 0; e < kExperts; ++e) {
    std::int32_t before = -1;
    for (std::int64_t i = 0; i < routing.counts[static_cast<std::size_t>(e)]; ++i, ++row) {
      CHECK(p.token_of_row[row] > before);
      before = p.token_of_row[row];
      const auto slot = static_cast<std::size_t>(p.slot_of_row[row]);
      CHECK(routing.experts[slot] == e);
      CHECK(p.row_of_slot[slot] == static_cast<std::int32_t>(row));
    }
  }
  CHECK(row == routing.experts.size());
}

}  // namespace rr::model
