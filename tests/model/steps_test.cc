// Three AdamW steps of the product's optimizer against transformers and torch.optim.
#include <ATen/core/Tensor.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "rig.h"

namespace rr::model {

TEST_CASE("loss, gradient norm and parameters after three AdamW steps agree with transformers") {
  for (const std::string folder :
       {"hf_qwen3_dense/untied", "hf_qwen3_dense/tied", "hf_qwen3_moe/norm_topk",
        "hf_qwen3_moe/plain_topk", "hf_qwen3_moe/idle_experts", "hf_mixtral/plain"}) {
    INFO(folder);
    const checkpoint::SafetensorsReader expect(oracle(folder) + "/expect.safetensors");
    RigOptions options;
    optim::Optimizer* optimizer = nullptr;
    options.with_optimizer = true;
    options.hooks.gradients_ready = [&](int layer) { optimizer->gradients_ready(layer); };
    options.hooks.before_layer = [&](int layer) { optimizer->wait_for(layer); };
    Rig rig(spec_of(folder), std::move(options));
    optimizer = rig.optimizer.get();
    rig.load(folder);
    const at::Tensor ids = tensor_of(expect, "step_input_ids");
    const at::Tensor losses = tensor_of(expect, "step_loss"),
                     norms = tensor_of(expect, "step_grad_norm");
    for (int step = 0; step < 3; ++step) {
      const at::Tensor batch = ids.select(0, step).contiguous();
      at::Tensor labels = batch.roll({-1}, {1}).contiguous();
      labels.select(1, labels.size(1) - 1).fill_(-100);
      optimizer->begin();
      train_once(rig, tokens_of(batch, labels));
      const Loss loss = rig.model->loss();
      CHECK(std::abs(loss.sum / loss.num_tokens - losses.select(0, step).item<double>()) < 2e-5);
      const optim::StepResult result = optimizer->step({1e-3, 0.1, step + 1});
      const double norm = norms.select(0, step).item<double>();
      CHECK(std::abs(result.grad_norm / norm - 1) < 1e-5);
    }
    optimizer->finish();
    std::int64_t far = 0, elements = 0;
    const auto weights = rig.hf_weights();
    for (const auto& [name, info] : expect.tensors()) {
      if (!name.starts_with("after3.")) continue;
      INFO(name);
      const at::Tensor want = tensor_of(expect, name);
      const at::Tensor difference = weights.at(name.substr(7)).sub(want).abs();
      // The first steps move an element whose gradient is near 1e-9 by up to lr either way.
      CHECK(difference.max().item<double>() < 3e-4);
      far += difference.gt(1e-6).sum().item<std::int64_t>();
      elements += difference.numel();
    }
    CHECK(static_cast<double>(far) < 1e-3 * static_cast<double>(elements));
  }
}

}  // namespace rr::model
