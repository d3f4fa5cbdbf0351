// Two stages chained by hand against one, and expert parallelism over two threads against one rank.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <barrier>
#include <catch2/catch.hpp>
#include <cmath>
#include <exception>
#include <thread>

#include "rig.h"

namespace rr::model {

namespace {

plan::ModelSpec four_layers() {
  plan::ModelSpec spec = small_spec();
  spec.num_layers = 4;
  spec.experts = 4;
  spec.experts_per_token = 2;
  spec.expert_ffn = 32;
  spec.layer_is_moe = {true, false, true, true};
  spec.load_balance = plan::LoadBalance::aux_loss;
  spec.aux_loss_coefficient = 0.01;
  return spec;
}

Rig stage_rig(const plan::ModelSpec& spec, int stage, std::int64_t offload_layers = 0) {
  RigOptions options;
  options.pipeline = 2;
  options.stage = stage;
  options.micro_batch = 1;
  options.offload_layers = offload_layers;
  return Rig(spec, std::move(options));
}

std::vector<Tokens> micro_batches(std::int64_t vocab, int count) {
  std::vector<Tokens> all;
  for (int m = 0; m < count; ++m) {
    // The planned length: middle stages know no other.
    all.push_back(random_tokens(1, 32, vocab, 20 + static_cast<std::uint64_t>(m)));
  }
  return all;
}

// One step of one stage with all micro-batches; returns the sum of losses.
double train_alone(Rig& rig, const std::vector<Tokens>& batches) {
  double sum = 0;
  rig.model->begin_step();
  for (int m = 0; m < static_cast<int>(batches.size()); ++m) {
    rig.model->forward(m, batches[static_cast<std::size_t>(m)], {}, 1.0 / 3);
    sum += rig.model->loss().sum;
    rig.model->backward(m, {}, m + 1 == static_cast<int>(batches.size()));
  }
  return sum;
}

// 1F1B of two stages: the first runs one micro-batch ahead.
double train_pipelined(Rig& first, Rig& second, const std::vector<Tokens>& batches) {
  const int count = static_cast<int>(batches.size());
  double sum = 0;
  first.model->begin_step();
  second.model->begin_step();
  std::vector<at::Tensor> activations(batches.size());
  const auto forward = [&](int m) {
    activations[static_cast<std::size_t>(m)] =
        first.model->forward(m, batches[static_cast<std::size_t>(m)], {}, 1.0 / 3);
  };
  forward(0);
  for (int m = 0; m < count; ++m) {
    if (m + 1 < count) forward(m + 1);
    at::Tensor& activation = activations[static_cast<std::size_t>(m)];
    second.model->forward(m, batches[static_cast<std::size_t>(m)], activation, 1.0 / 3);
    activation.reset();
    sum += second.model->loss().sum;
    const at::Tensor gradient = second.model->backward(m, {}, m + 1 == count);
    CHECK(first.model->backward(m, gradient, m + 1 == count).defined() == false);
  }
  return sum;
}

}  // namespace

TEST_CASE("two stages give the bits of one, with several graphs alive and tensors away") {
  for (const bool bf16 : {false, true}) {
    for (const std::int64_t away : {0, 1}) {
      plan::ModelSpec spec = four_layers();
      if (bf16) spec.compute = DType::bf16;
      INFO("bf16 " << bf16 << " away " << away);
      const auto batches = micro_batches(spec.vocab, 3);
      Rig whole(spec);
      Rig first = stage_rig(spec, 0, away), second = stage_rig(spec, 1, away);
      for (Rig* rig : {&whole, &first, &second}) rig->draw_weights();
      const double want = train_alone(whole, batches);
      CHECK(train_pipelined(first, second, batches) == want);
      auto gradients = first.gradients();
      gradients.merge(second.gradients());
      CHECK(same_bits(gradients, whole.gradients()));
      if (away > 0) CHECK(first.store->totals().bytes_in > 0);
      const AuxiliaryLosses a = first.model->auxiliary_losses(),
                            b = second.model->auxiliary_losses();
      CHECK(a.moe_layers + b.moe_layers == 3);
      CHECK(std::abs(a.load_balancing + b.load_balancing -
                     whole.model->auxiliary_losses().load_balancing) < 1e-9);
      // Evaluation walks the same stages.
      whole.model->evaluate(batches[0], {});
      second.model->evaluate(batches[0], first.model->evaluate(batches[0], {}));
      CHECK(second.model->loss().sum == whole.model->loss().sum);
    }
  }
}

TEST_CASE("with tied weights the two copies' gradients sum to the gradient of one") {
  plan::ModelSpec spec = four_layers();
  spec.tied = true;
  const auto batches = micro_batches(spec.vocab, 3);
  Rig whole(spec);
  Rig first = stage_rig(spec, 0), second = stage_rig(spec, 1);
  for (Rig* rig : {&whole, &first, &second}) rig->draw_weights();
  CHECK(train_pipelined(first, second, batches) == train_alone(whole, batches));
  const at::Tensor want = whole.gradients().at("embedding.word_embeddings.weight");
  const at::Tensor sum = first.gradients()
                             .at("embedding.word_embeddings.weight")
                             .add(second.gradients().at("output_layer.weight"));
  CHECK(max_difference(sum, want) < 1e-6 * want.abs().max().item<double>());
}

// ---- expert parallel over threads ---------------------------------------------------------------

namespace {

constexpr int kRanks = 2;

struct Meeting {
  std::barrier<> barrier{kRanks};
  std::span<const std::byte> in[kRanks];
  std::span<const std::int64_t> counts[kRanks];
};

// All-to-all between threads; the model needs nothing else of its expert group.
class ThreadGroup final : public comm::Communicator {
 public:
  ThreadGroup(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return kRanks; }
  void all_to_all(std::span<const std::byte> in, std::span<const std::int64_t> counts_in,
                  std::span<std::byte> out, std::span<const std::int64_t> counts_out) override {
    meeting_.in[rank_] = in;
    meeting_.counts[rank_] = counts_in;
    meeting_.barrier.arrive_and_wait();
    auto* to = out.data();
    for (int from = 0; from < kRanks; ++from) {
      const std::byte* source = meeting_.in[from].data();
      for (int r = 0; r < rank_; ++r) source += meeting_.counts[from][static_cast<std::size_t>(r)];
      const auto bytes = meeting_.counts[from][static_cast<std::size_t>(rank_)];
      RR_CHECK(bytes == counts_out[static_cast<std::size_t>(from)], "counts agree");
      std::copy_n(source, bytes, to);
      to += bytes;
    }
    RR_CHECK(to == out.data() + out.size(), "all bytes");
    meeting_.barrier.arrive_and_wait();
  }
  void all_reduce_sum(std::span<float>) override { refuse(); }
  void all_reduce_sum(std::span<double>) override { refuse(); }
  void all_reduce_max(std::span<double>) override { refuse(); }
  void reduce_scatter_sum(std::span<const float>, std::span<float>) override { refuse(); }
  void all_gather(std::span<const std::byte>, std::span<std::byte>) override { refuse(); }
  void broadcast(std::span<std::byte>, int) override { refuse(); }
  void barrier() override { refuse(); }
  std::unique_ptr<comm::Pending> send(std::span<const std::byte>, int, int) override {
    refuse();
    return nullptr;
  }
  void receive(std::span<std::byte>, int, int) override { refuse(); }

 private:
  static void refuse() { throw Error("only all_to_all"); }
  Meeting& meeting_;
  int rank_;
};

struct RankResult {
  double loss = 0;
  AuxiliaryLosses auxiliary;
  std::map<std::string, at::Tensor> gradients;
};

void run_rank(const plan::ModelSpec& spec, int rank, const Tokens& tokens, bool even,
              Meeting& meeting, RankResult& result) {
  RigOptions options;
  options.expert = kRanks;
  options.expert_rank = rank;
  options.expert_group = std::make_unique<ThreadGroup>(meeting, rank);
  Rig rig(spec, std::move(options));
  rig.draw_weights();
  if (even) rig.weights().at("decoder.layers.0.mlp.router.weight").zero_();
  train_once(rig, tokens, 0.5);
  result.loss = rig.model->loss().sum;
  result.auxiliary = rig.model->auxiliary_losses();
  result.gradients = rig.gradients();
}

// Expert gradients of the ranks one after the other, dense ones added up.
std::map<std::string, at::Tensor> joined(const RankResult (&ranks)[kRanks]) {
  std::map<std::string, at::Tensor> all;
  for (const auto& [name, gradient] : ranks[0].gradients) {
    const at::Tensor& other = ranks[1].gradients.at(name);
    const bool expert = name.find(".experts.") != std::string::npos;
    at::Tensor both = expert ? at::zeros_like(gradient).resize_(
                                   {2 * gradient.size(0), gradient.size(1), gradient.size(2)})
                             : gradient.add(other);
    if (expert) {
      both.narrow(0, 0, gradient.size(0)).copy_(gradient);
      both.narrow(0, gradient.size(0), gradient.size(0)).copy_(other);
    }
    all[name] = both;
  }
  return all;
}

}  // namespace

TEST_CASE("B056, B057: losses and all gradients of EP 2 are those of one rank") {
  test_device();
  for (const bool even : {false, true}) {
    plan::ModelSpec spec = four_layers();
    INFO("router of the first layer is zero, so all its tokens go to rank 0: " << even);
    const Tokens tokens[kRanks] = {random_tokens(1, 24, spec.vocab, 31),
                                   random_tokens(1, 19, spec.vocab, 32)};
    RankResult ranks[kRanks];
    Meeting meeting;
    std::thread other([&] { run_rank(spec, 1, tokens[1], even, meeting, ranks[1]); });
    run_rank(spec, 0, tokens[0], even, meeting, ranks[0]);
    other.join();

    Rig alone(spec);
    alone.draw_weights();
    if (even) alone.weights().at("decoder.layers.0.mlp.router.weight").zero_();
    alone.model->begin_step();
    double auxiliary = 0;
    for (int r = 0; r < kRanks; ++r) {
      alone.model->forward(r, tokens[r], {}, 0.5);
      // Products over other numbers of rows may differ in the last bit.
      CHECK(std::abs(alone.model->loss().sum - ranks[r].loss) < 1e-6 * ranks[r].loss);
      alone.model->backward(r, {}, r + 1 == kRanks);
      auxiliary += ranks[r].auxiliary.load_balancing;
    }
    CHECK(std::abs(alone.model->auxiliary_losses().load_balancing - auxiliary) < 1e-6);
    const auto together = joined(ranks);
    for (const auto& [name, want] : alone.gradients()) {
      INFO(name);
      CHECK(max_difference(together.at(name), want) <= 1e-5 * want.abs().max().item<double>());
    }
  }
}

}  // namespace rr::model
