// Gradients by finite differences, accumulation, document masks, bf16 and the hooks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "base/random.h"
#include "rig.h"

namespace rr::model {

namespace {

double mean_loss(Rig& rig, const Tokens& tokens) {
  rig.model->evaluate(tokens, {});
  return rig.model->loss().sum / rig.model->loss().num_tokens;
}

at::Tensor direction_of(const at::Tensor& gradient, const std::string& name) {
  at::Tensor random = gradient.clone();
  RandomStream(3, name).normal(0, random.numel(), 1.0F, random.mutable_data_ptr<float>());
  // Half along the gradient, for a large signal; half anywhere, to see what is missing from it.
  return gradient.div(gradient.norm()).add(random.div(random.norm()));
}

// Moves each parameter alone, both ways, and compares with the gradient. Step 3e-3: the loss moves
// by 1e-4 to 1e-2 of about 5, and is known to 1e-7 of itself.
void check_by_differences(Rig& rig, const Tokens& tokens, double tolerance) {
  train_once(rig, tokens);
  const auto gradients = rig.gradients();
  for (const auto& [name, weight] : rig.weights()) {
    INFO(name);
    const at::Tensor& gradient = gradients.at(name);
    REQUIRE(std::isfinite(gradient.sum().item<double>()));
    const at::Tensor direction = direction_of(gradient, name);
    const at::Tensor kept = weight.clone();
    const double h = 3e-3;
    weight.add_(direction, h);
    const double up = mean_loss(rig, tokens);
    weight.add_(direction, -2 * h);
    const double down = mean_loss(rig, tokens);
    weight.copy_(kept);
    const double want = gradient.mul(direction).sum().item<double>();
    CHECK(std::abs((up - down) / (2 * h) - want) < tolerance * std::abs(want) + 1e-4);
  }
}

}  // namespace

TEST_CASE("B067: the tied embedding's gradient is the sum of both uses, by finite differences") {
  plan::ModelSpec spec = small_spec();
  spec.tied = true;
  spec.embedding_std = 0.1;
  Rig rig(spec);
  rig.draw_weights();
  check_by_differences(rig, random_tokens(2, 12, spec.vocab, 1), 3e-3);
}

TEST_CASE("LayerNorm, GELU, biases and learned positions: gradients by finite differences") {
  plan::ModelSpec spec = small_spec();
  spec.norm = plan::Norm::layer;
  spec.activation = plan::Activation::gelu;
  spec.gated = false;
  spec.linear_bias = true;
  spec.position = plan::Position::learned;
  Rig rig(spec);
  rig.draw_weights();
  check_by_differences(rig, random_tokens(2, 12, spec.vocab, 2), 3e-3);
}

TEST_CASE("partial rotation and QK-norm over all heads: gradients by finite differences") {
  plan::ModelSpec spec = small_spec();
  spec.qk_norm = spec.qk_norm_whole = true;
  spec.rotary_percent = 0.5;
  spec.query_groups = 1;
  Rig rig(spec);
  rig.draw_weights();
  check_by_differences(rig, random_tokens(1, 20, spec.vocab, 3), 3e-3);
}

namespace {

plan::ModelSpec small_moe() {
  plan::ModelSpec spec = small_spec();
  spec.experts = 8;
  spec.experts_per_token = 2;
  spec.expert_ffn = 32;
  spec.qk_norm = true;
  spec.layer_is_moe = {true, false};
  return spec;
}

}  // namespace

TEST_CASE("auxiliary losses reach the gradients with the loss's scale") {
  plan::ModelSpec spec = small_moe();
  const Tokens tokens = random_tokens(2, 12, spec.vocab, 4);
  spec.load_balance = plan::LoadBalance::aux_loss;
  const auto run = [&](double balance, double z, double scale, AuxiliaryLosses* losses = nullptr) {
    spec.aux_loss_coefficient = balance;
    spec.z_loss_coefficient = z;
    Rig rig(spec);
    rig.draw_weights();
    train_once(rig, tokens, scale);
    if (losses != nullptr) *losses = rig.model->auxiliary_losses();
    return rig.gradients().at("decoder.layers.0.mlp.router.weight");
  };
  AuxiliaryLosses losses;
  const at::Tensor none = run(0, 0, 1);
  const at::Tensor both = run(0.5, 0.01, 1, &losses);
  const at::Tensor half = run(0.5, 0.01, 0.5);
  CHECK(max_difference(both, none) > 1e-2);
  CHECK(max_difference(half.mul(2), both) < 1e-6);
  CHECK(losses.moe_layers == 1);
  CHECK(losses.load_balancing > 1.0);
  CHECK(losses.z > 0.0);
  // The losses' own gradient by differences along it.
  const at::Tensor extra = both.sub(none);
  const at::Tensor direction = extra.div(extra.norm());
  const auto value = [&](double step) {
    spec.aux_loss_coefficient = 0.5;
    spec.z_loss_coefficient = 0.01;
    Rig rig(spec);
    rig.draw_weights();
    rig.weights().at("decoder.layers.0.mlp.router.weight").add_(direction, step);
    train_once(rig, tokens);
    const AuxiliaryLosses at = rig.model->auxiliary_losses();
    return 0.5 * at.load_balancing + 0.01 * at.z;
  };
  // Counts jump where a token changes its experts; this step is too short for that.
  const double slope = (value(1e-4) - value(-1e-4)) / 2e-4;
  CHECK(std::abs(slope / extra.norm().item<double>() - 1) < 1e-2);
}

TEST_CASE("gradients of several micro-batches add up, the first of a step overwrites") {
  const plan::ModelSpec spec = small_moe();
  const Tokens a = random_tokens(1, 9, spec.vocab, 5), b = random_tokens(1, 9, spec.vocab, 6);
  Rig rig(spec);
  rig.draw_weights();
  train_once(rig, a, 0.5);
  const auto first = rig.gradients();
  train_once(rig, b, 0.5);
  const auto second = rig.gradients();
  rig.model->begin_step();
  rig.model->forward(0, a, {}, 0.5);
  rig.model->backward(0, {}, false);
  rig.model->forward(1, b, {}, 0.5);
  rig.model->backward(1, {}, true);
  int idle = 0;
  for (const auto& [name, sum] : rig.gradients()) {
    INFO(name);
    // One addition in fp32, in another order inside the products.
    const double most = sum.abs().max().item<double>();
    CHECK(max_difference(first.at(name).add(second.at(name)), sum) <= 1e-6 * most + 1e-9);
    if (name.find("experts") == std::string::npos) continue;
    for (std::int64_t e = 0; e < sum.size(0); ++e) {
      const bool in_first = first.at(name).select(0, e).abs().max().item<double>() > 0;
      const bool in_second = second.at(name).select(0, e).abs().max().item<double>() > 0;
      idle += in_first != in_second ? 1 : 0;
    }
  }
  // Some expert had tokens in one micro-batch only, else this test shows little.
  CHECK(idle > 0);
}

TEST_CASE("the same step twice gives the same bits") {
  const plan::ModelSpec spec = small_moe();
  const Tokens tokens = random_tokens(2, 17, spec.vocab, 7);
  Rig rig(spec);
  rig.draw_weights();
  train_once(rig, tokens);
  const auto first = rig.gradients();
  const double loss = rig.model->loss().sum;
  train_once(rig, tokens);
  CHECK(rig.model->loss().sum == loss);
  CHECK(same_bits(rig.gradients(), first));
}

TEST_CASE("two threads give the loss and gradients of one") {
  plan::ModelSpec spec = small_moe();
  spec.hidden = 128;
  spec.seq_length = 320;  // more than one block of queries
  const Tokens tokens = random_tokens(1, 320, spec.vocab, 13);
  Rig rig(spec);
  rig.draw_weights();
  train_once(rig, tokens);
  const auto one = rig.gradients();
  const double loss = rig.model->loss().sum;
  install_torch_globals(test_device(), 2);
  train_once(rig, tokens);
  install_torch_globals(test_device(), 1);
  // Our kernels give the same bits; the BLAS may split a sum elsewhere.
  CHECK(std::abs(rig.model->loss().sum - loss) < 1e-6 * loss);
  for (const auto& [name, gradient] : rig.gradients()) {
    INFO(name);
    CHECK(max_difference(gradient, one.at(name)) < 1e-5 * gradient.abs().max().item<double>());
  }
}

TEST_CASE("hooks see layers in order, and a layer's gradients are final when its hook fires") {
  const plan::ModelSpec spec = small_moe();
  std::vector<int> forward, ready;
  std::map<int, std::map<std::string, at::Tensor>> at_hook;
  Rig* self = nullptr;
  RigOptions options;
  options.hooks.before_layer = [&](int layer) { forward.push_back(layer); };
  options.hooks.gradients_ready = [&](int layer) {
    ready.push_back(layer);
    at_hook[layer] = self->gradients();
  };
  Rig rig(spec, std::move(options));
  self = &rig;
  rig.draw_weights();
  const Tokens a = random_tokens(1, 9, spec.vocab, 5), b = random_tokens(1, 9, spec.vocab, 6);
  rig.model->begin_step();
  rig.model->forward(0, a, {}, 0.5);
  rig.model->backward(0, {}, false);
  CHECK(forward == std::vector<int>{0, 1, 2, 3});
  CHECK(ready.empty());
  rig.model->forward(1, b, {}, 0.5);
  rig.model->backward(1, {}, true);
  CHECK(ready == std::vector<int>{3, 2, 1, 0});
  const auto last = rig.gradients();
  for (const plan::Parameter& p : rig.plan.stages[0].parameters) {
    INFO(p.name);
    CHECK(same_bits(at_hook[p.layer].at(p.name), last.at(p.name)));
  }
}

TEST_CASE("documents packed into one sequence train as if they were alone") {
  const plan::ModelSpec spec = small_spec();
  const Tokens a = random_tokens(1, 7, spec.vocab, 8), b = random_tokens(1, 12, spec.vocab, 9);
  Tokens packed;
  packed.tokens = at::cat({a.tokens, b.tokens}, 1);
  packed.labels = at::cat({a.labels, b.labels}, 1);
  packed.loss_mask = at::cat({a.loss_mask, b.loss_mask}, 1);
  packed.positions = at::cat({a.positions, b.positions}, 1);
  packed.document_starts =
      at::cat({at::zeros({1, 7}, at::kLong), at::full({1, 12}, 7, at::kLong)}, 1);
  Rig rig(spec);
  rig.draw_weights();
  train_once(rig, packed);
  const auto together = rig.gradients();
  const double loss = rig.model->loss().sum;
  rig.model->begin_step();
  rig.model->forward(0, a, {}, 7.0 / 19);
  double separate = rig.model->loss().sum;
  rig.model->backward(0, {}, false);
  rig.model->forward(1, b, {}, 12.0 / 19);
  separate += rig.model->loss().sum;
  rig.model->backward(1, {}, true);
  CHECK(std::abs(separate - loss) < 1e-5 * loss);
  for (const auto& [name, gradient] : rig.gradients()) {
    INFO(name);
    const double most = gradient.abs().max().item<double>();
    CHECK(max_difference(gradient, together.at(name)) < 1e-5 * most);
  }
  // And the mask is what does it.
  packed.document_starts = at::Tensor();
  rig.model->evaluate(packed, {});
  CHECK(std::abs(rig.model->loss().sum - loss) > 1e-2);
}

TEST_CASE("masked tokens count neither in the loss nor in gradients") {
  const plan::ModelSpec spec = small_spec();
  Tokens tokens = random_tokens(1, 10, spec.vocab, 10);
  Rig rig(spec);
  rig.draw_weights();
  tokens.loss_mask.narrow(1, 6, 4).fill_(0);
  train_once(rig, tokens);
  const auto masked = rig.gradients();
  const Loss loss = rig.model->loss();
  CHECK(loss.num_tokens == 6);
  // Under the causal mask the first six tokens alone are the same problem.
  Tokens shorter = random_tokens(1, 10, spec.vocab, 10);
  for (at::Tensor* t : {&shorter.tokens, &shorter.labels, &shorter.positions, &shorter.loss_mask}) {
    *t = t->narrow(1, 0, 6).contiguous();
  }
  train_once(rig, shorter);
  CHECK(std::abs(rig.model->loss().sum - loss.sum) < 1e-5 * loss.sum);
  for (const auto& [name, gradient] : rig.gradients()) {
    INFO(name);
    const double most = gradient.abs().max().item<double>();
    CHECK(max_difference(gradient, masked.at(name)) < 1e-5 * most);
  }
  tokens.loss_mask.fill_(0);
  train_once(rig, tokens);
  CHECK(rig.model->loss().num_tokens == 0);
  for (const auto& [name, gradient] : rig.gradients()) {
    CHECK(gradient.abs().max().item<double>() == 0.0);
  }
}

TEST_CASE("bf16 follows fp32: loss within 1e-2, gradients in nearly the same direction") {
  plan::ModelSpec spec = small_moe();
  const Tokens tokens = random_tokens(2, 24, spec.vocab, 11);
  Rig full(spec);
  full.draw_weights();
  // The same values in both models: what bf16 can hold.
  for (const auto& [name, weight] : full.weights()) {
    weight.copy_(weight.to(at::kBFloat16).to(at::kFloat));
  }
  spec.compute = DType::bf16;
  Rig half(spec);
  half.draw_weights();
  train_once(full, tokens);
  train_once(half, tokens);
  const double want = full.model->loss().sum / full.model->loss().num_tokens;
  const double got = half.model->loss().sum / half.model->loss().num_tokens;
  CHECK(got != want);
  CHECK(std::abs(got - want) < 1e-2);
  const auto a = full.gradients(), b = half.gradients();
  for (const auto& [name, gradient] : a) {
    INFO(name);
    const double cosine = gradient.mul(b.at(name)).sum().item<double>() /
                          (gradient.norm().item<double>() * b.at(name).norm().item<double>());
    // 2^-9 per rounding and a few dozen roundings on the way.
    CHECK(cosine > 0.99);
  }
}

TEST_CASE("ids, labels and positions outside their range are refused before a kernel sees them") {
  const plan::ModelSpec spec = small_spec();
  Rig rig(spec);
  rig.draw_weights();
  const auto refused = [&](const std::function<void(Tokens&)>& change) {
    Tokens tokens = random_tokens(1, 8, spec.vocab, 12);
    change(tokens);
    CHECK_THROWS_AS(rig.model->evaluate(tokens, {}), Error);
  };
  refused([&](Tokens& t) { t.tokens.select(1, 3).fill_(spec.vocab); });
  refused([](Tokens& t) { t.tokens.select(1, 3).fill_(-1); });
  refused([&](Tokens& t) { t.labels.select(1, 3).fill_(spec.vocab); });
  refused([](Tokens& t) { t.positions.select(1, 3).fill_(32); });
  refused([](Tokens& t) { t.loss_mask = t.loss_mask.narrow(1, 0, 4); });
  refused([](Tokens& t) { t.labels = at::Tensor(); });
}

TEST_CASE("an exception out of a hook comes through backward, and the model still works") {
  const plan::ModelSpec spec = small_spec();
  bool fail = true;
  RigOptions options;
  options.hooks.gradients_ready = [&](int layer) {
    if (fail && layer == 1) throw UsageError({Severity::error, "hook", "", "failed", ""});
  };
  Rig rig(spec, std::move(options));
  rig.draw_weights();
  const Tokens tokens = random_tokens(1, 8, spec.vocab, 12);
  rig.model->begin_step();
  rig.model->forward(0, tokens, {}, 1.0);
  CHECK_THROWS_AS(rig.model->backward(0, {}, true), UsageError);
  CHECK_THROWS_AS(rig.model->backward(0, {}, true), Error);  // its graph is gone
  fail = false;
  train_once(rig, tokens);
  Rig fresh(spec);
  fresh.draw_weights();
  train_once(fresh, tokens);
  CHECK(same_bits(rig.gradients(), fresh.gradients()));
}

}  // namespace rr::model
