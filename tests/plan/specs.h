// Models and layouts that several plan tests build by hand.
#pragma once

#include <cmath>

#include "plan/planner.h"

namespace rr::plan::testing {

inline Topology topology(int tensor, int pipeline, int expert, int data, int context = 1,
                         int expert_tensor = 1) {
  Topology t;
  t.tensor = tensor;
  t.context = context;
  t.pipeline = pipeline;
  t.data = data;
  t.world = tensor * context * pipeline * data;
  t.expert = expert;
  t.expert_tensor = expert_tensor;
  t.expert_data = t.world / (pipeline * expert * expert_tensor);
  return t;
}

inline ModelSpec tiny_moe() {
  ModelSpec m;
  m.num_layers = 4;
  m.hidden = 32;
  m.heads = 4;
  m.query_groups = 2;
  m.head_dim = 8;
  m.ffn = 96;
  m.vocab = 257;
  m.padded_vocab = 320;
  m.seq_length = 16;
  m.qk_norm = true;
  m.experts = 4;
  m.experts_per_token = 2;
  m.expert_ffn = 40;
  m.layer_is_moe = {true, false, true, true};
  return m;
}

inline ModelSpec qwen3_30b_a3b() {
  ModelSpec m;
  m.num_layers = 48;
  m.hidden = 2048;
  m.heads = 32;
  m.query_groups = 4;
  m.head_dim = 128;
  m.ffn = 6144;
  m.vocab = m.padded_vocab = 151936;
  m.seq_length = 4096;
  m.qk_norm = true;
  m.experts = 128;
  m.experts_per_token = 8;
  m.expert_ffn = 768;
  m.layer_is_moe.assign(48, true);
  m.compute = DType::bf16;
  return m;
}

inline Plan hand_made(const ModelSpec& model, const Topology& topology,
                      std::int64_t bucket_elements = 0) {
  Plan plan;
  plan.model = model;
  plan.topology = topology;
  lay_out(plan, bucket_elements);
  return plan;
}

}  // namespace rr::plan::testing
