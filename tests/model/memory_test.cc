// What the Plan says about activations against what the device pool measures.
#include <ATen/core/Tensor.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "rig.h"

namespace rr::model {

namespace {

plan::ModelSpec wide_spec(bool moe, DType compute) {
  plan::ModelSpec spec = small_spec();
  spec.num_layers = 4;
  spec.hidden = 128;
  spec.heads = 4;
  spec.head_dim = 32;
  spec.ffn = 384;
  spec.seq_length = 256;
  spec.qk_norm = true;
  spec.compute = compute;
  spec.layer_is_moe.assign(4, moe);
  if (moe) {
    spec.experts = 8;
    spec.experts_per_token = 2;
    spec.expert_ffn = 64;
  }
  return spec;
}

std::int64_t planned(const Rig& rig) {
  std::int64_t bytes = 0;
  for (const plan::MemoryItem& item : rig.rank.memory) {
    if (item.pool == Pool::device && !item.exact) bytes += item.bytes;
  }
  return bytes;
}

}  // namespace

TEST_CASE("the device pool's peak above weights and state is the planned one within 5 percent") {
  device::Device& device = test_device();
  for (const bool moe : {false, true}) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      for (const std::int64_t away : {0, 3}) {
        INFO("moe " << moe << " " << name_of(compute) << ", layers away " << away);
        RigOptions options;
        options.offload_layers = away;
        options.micro_batch = 4;
        Rig rig(wide_spec(moe, compute), std::move(options));
        rig.draw_weights();
        const Tokens tokens = random_tokens(4, 256, 101, 1);
        const std::int64_t before = device.usage(Pool::device).now;
        device.reset_peaks();
        train_once(rig, tokens);
        const auto peak = static_cast<double>(device.usage(Pool::device).peak - before);
        INFO("planned " << planned(rig) << " measured " << peak);
        CHECK(std::abs(peak / static_cast<double>(planned(rig)) - 1) < 0.05);
      }
    }
  }
}

}  // namespace rr::model
