// How close a training step of a small decoder comes to its matrix products alone, measured in the
// same run: model_bench [THREADS [f32|bf16]] prints ms per forward and backward, GFLOP/s and the
// ratio. No test.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "comm/comm.h"
#include "model/model.h"
#include "model/parallel.h"
#include "plan/plan.h"

namespace {

using namespace rr;

constexpr std::int64_t kBatch = 4, kSeq = 256, kTokens = kBatch * kSeq;

plan::ModelSpec spec_of(bool moe, DType compute) {
  plan::ModelSpec spec;
  spec.num_layers = 4;
  spec.hidden = 256;
  spec.heads = 4;
  spec.query_groups = 2;
  spec.head_dim = 64;
  spec.ffn = 768;
  spec.vocab = spec.padded_vocab = 2048;
  spec.seq_length = kSeq;
  spec.qk_norm = true;
  spec.compute = compute;
  spec.layer_is_moe.assign(4, moe);
  if (moe) {
    spec.experts = 8;
    spec.experts_per_token = 2;
    spec.expert_ffn = 128;
  }
  return spec;
}

double best_of(int rounds, const std::function<void()>& work) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return best;
}

// One matrix product of the step: forward and the two of backward, `times` over.
struct Product {
  std::int64_t rows, in, out, times;
  double flops() const { return 6.0 * static_cast<double>(rows * in * out * times); }
};

// Linear layers as the model calls them; attention's products as dense halves of the square.
std::vector<Product> products(const plan::ModelSpec& m) {
  const std::int64_t q = m.heads * m.head_dim, kv = m.query_groups * m.head_dim;
  std::vector<Product> list = {{kTokens, m.hidden, q + 2 * kv, m.num_layers},
                               {kTokens, q, m.hidden, m.num_layers},
                               {kTokens, m.hidden, m.vocab, 1},
                               {kSeq, m.head_dim, kSeq / 2, 2 * m.num_layers * kBatch * m.heads}};
  if (m.experts > 0) {
    const std::int64_t rows = kTokens * m.experts_per_token / m.experts;
    list.push_back({rows, m.hidden, 2 * m.expert_ffn, m.num_layers * m.experts});
    list.push_back({rows, m.expert_ffn, m.hidden, m.num_layers * m.experts});
  } else {
    list.push_back({kTokens, m.hidden, 2 * m.ffn, m.num_layers});
    list.push_back({kTokens, m.ffn, m.hidden, m.num_layers});
  }
  return list;
}

double products_ms(const std::vector<Product>& list) {
  std::vector<float> a(kTokens * 2048, 0.5F), b(2048 * 2048, 0.5F), c(kTokens * 2048),
      d(2048 * 2048);
  return best_of(10, [&] {
    for (const Product& p : list) {
      for (std::int64_t i = 0; i < p.times; ++i) {
        model::gemm(p.rows, p.out, p.in, 1.0F, {a.data(), p.in}, {b.data(), p.in, true}, 0.0F,
                    c.data(), p.out);
        model::gemm(p.rows, p.in, p.out, 1.0F, {a.data(), p.out}, {b.data(), p.in}, 0.0F, c.data(),
                    p.in);
        model::gemm(p.out, p.in, p.rows, 1.0F, {a.data(), p.out, true}, {a.data(), p.in}, 0.0F,
                    d.data(), p.in);
      }
    }
  });
}

model::Tokens random_tokens(std::int64_t vocab) {
  model::Tokens tokens;
  tokens.tokens = at::empty({kBatch, kSeq}, at::TensorOptions().dtype(at::kLong));
  const RandomStream random(1, "tokens");
  auto* ids = tokens.tokens.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < kTokens; ++i) {
    ids[i] = random.bits(static_cast<std::uint64_t>(i)) % static_cast<std::uint32_t>(vocab);
  }
  tokens.labels = tokens.tokens;
  tokens.loss_mask = at::ones({kBatch, kSeq}, at::TensorOptions().dtype(at::kFloat));
  return tokens;
}

void bench(device::Device& device, bool moe, DType compute) {
  plan::Plan plan;
  plan.model = spec_of(moe, compute);
  plan::lay_out(plan);
  const plan::RankPlan rank = plan::rank_plan(plan, 0);
  const auto world = comm::make_self_world();
  const comm::Groups groups = comm::make_groups(*world, plan.topology);
  std::vector<model::BufferView> buffers;
  for (const plan::FlatBuffer& buffer : plan.stages[0].buffers) {
    buffers.push_back(
        {device.allocate(Pool::device, buffer.size * size_of(buffer.dtype), "weights"),
         device.allocate(Pool::device, buffer.size * 4, "gradients")});
    std::vector<float> values(static_cast<std::size_t>(buffer.size));
    RandomStream(1, "weights").normal(0, buffer.size, 0.05F, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (compute == DType::f32) buffers.back().weights.as<float>()[i] = values[i];
      if (compute == DType::bf16) {
        buffers.back().weights.as<std::uint16_t>()[i] = bf16_from_float(values[i]);
      }
    }
  }
  model::Model model({plan, rank, device, groups, buffers});
  const model::Tokens tokens = random_tokens(plan.model.vocab);
  double backward = 1e30;
  const double step = best_of(20, [&] {
    model.begin_step();
    model.forward(0, tokens, at::Tensor(), 1.0);
    backward = std::min(backward, best_of(1, [&] { model.backward(0, at::Tensor(), true); }));
  });
  const auto list = products(plan.model);
  double flops = 0;
  for (const Product& product : list) flops += product.flops();
  const double alone = products_ms(list);
  fmt::print(
      "{:5} {:4}: step {:6.1f} ms, backward {:6.1f} ms, {:5.1f} GFLOP/s, products alone "
      "{:6.1f} ms, ratio {:.2f}\n",
      moe ? "moe" : "dense", name_of(compute), step, backward, flops / step / 1e6, alone,
      step / alone);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : usable_cores();
  const bool bf16 = argc > 2 && std::string(argv[2]) == "bf16";
  static const auto device = device::make_cpu_device();
  model::install_torch_globals(*device, threads);
  for (const bool moe : {false, true}) bench(*device, moe, bf16 ? DType::bf16 : DType::f32);
}
