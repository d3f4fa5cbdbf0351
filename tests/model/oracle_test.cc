// Logits, loss and every gradient against transformers 5.24.0 (tests/data/model, tolerances from
// the oracles' own second way).
#include <ATen/core/Tensor.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "rig.h"

namespace rr::model {

namespace {

const std::vector<std::string> kFolders = {
    "hf_qwen3_dense/untied",        "hf_qwen3_dense/tied",       "hf_qwen3_moe/norm_topk",
    "hf_qwen3_moe/plain_topk",      "hf_qwen3_moe/idle_experts", "hf_llama/plain",
    "hf_llama/llama3_rope_sharded", "hf_mixtral/plain",          "hf_olmoe/plain"};

}  // namespace

TEST_CASE("logits and loss agree with transformers for every family") {
  for (const std::string& folder : kFolders) {
    INFO(folder);
    const checkpoint::SafetensorsReader expect(oracle(folder) + "/expect.safetensors");
    Rig rig(spec_of(folder));
    rig.load(folder);
    rig.model->keep_logits(true);
    const Tokens tokens = tokens_of(tensor_of(expect, "input_ids"), tensor_of(expect, "labels"));
    rig.model->evaluate(tokens, {});
    const at::Tensor want = tensor_of(expect, "logits");
    CHECK(max_difference(rig.model->logits().view(want.sizes()), want) < 5e-5);
    const Loss loss = rig.model->loss();
    CHECK(loss.num_tokens == tokens.loss_mask.sum().item<double>());
    const double want_loss = tensor_of(expect, "loss_f64").item<double>();
    CHECK(std::abs(loss.sum / loss.num_tokens - want_loss) < 1e-5);
  }
}

TEST_CASE("every gradient agrees with transformers for every family") {
  for (const std::string& folder : kFolders) {
    const checkpoint::SafetensorsReader expect(oracle(folder) + "/expect.safetensors");
    Rig rig(spec_of(folder));
    rig.load(folder);
    train_once(rig, tokens_of(tensor_of(expect, "input_ids"), tensor_of(expect, "labels")));
    const auto gradients = rig.hf_gradients();
    std::size_t compared = 0;
    for (const auto& [name, info] : expect.tensors()) {
      if (!name.starts_with("grad.")) continue;
      INFO(folder << " " << name);
      const at::Tensor want = tensor_of(expect, name);
      REQUIRE(gradients.contains(name.substr(5)));
      const at::Tensor& got = gradients.at(name.substr(5));
      REQUIRE(got.sizes() == want.sizes());
      // An expert without a token has gradient exactly 0: then the bound is 0 too.
      CHECK(max_difference(got, want) <= 1e-4 * want.abs().max().item<double>());
      ++compared;
    }
    CHECK(compared == gradients.size());
  }
}

TEST_CASE("padded rows of embedding and head get gradient zero") {
  plan::ModelSpec spec = small_spec();
  for (const bool tied : {false, true}) {
    spec.tied = tied;
    Rig rig(spec);
    rig.draw_weights();
    train_once(rig, random_tokens(2, 8, spec.vocab, 1));
    for (const auto& [name, gradient] : rig.gradients()) {
      if (name != "embedding.word_embeddings.weight" && name != "output_layer.weight") continue;
      INFO(name << " tied " << tied);
      const at::Tensor padding = gradient.narrow(0, spec.vocab, spec.padded_vocab - spec.vocab);
      CHECK(padding.abs().max().item<double>() == 0.0);
      CHECK(gradient.abs().max().item<double>() > 0.0);
    }
  }
}

TEST_CASE("weights that came from Hugging Face names go back to them bit for bit") {
  for (const std::string& folder : kFolders) {
    const checkpoint::SafetensorsReader source(oracle(folder));
    Rig rig(spec_of(folder));
    rig.load(folder);
    const auto weights = rig.hf_weights();
    CHECK(weights.size() == source.tensors().size());
    for (const auto& [name, info] : source.tensors()) {
      INFO(folder << " " << name);
      REQUIRE(weights.contains(name));
      CHECK(same_bits(weights.at(name), tensor_of(source, name)));
    }
  }
}

}  // namespace rr::model
