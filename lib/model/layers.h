// The decoder of one stage as a chain of layers over its weights. Private to the room.
#pragma once

#include <memory>
#include <vector>

#include "comm/comm.h"
#include "model/functions.h"
#include "model/moe.h"
#include "model/rope.h"

namespace rr::model {

struct Linear {
  Weight* weight = nullptr;
  Weight* bias = nullptr;
};

struct DecoderLayer {
  int id = 0;  // 1..L
  NormWeights attention_norm, mlp_norm;
  Linear qkv, projection;
  Weight* q_norm = nullptr;
  Weight* k_norm = nullptr;
  bool moe = false;
  Linear fc1, fc2;
  Weight* router = nullptr;
  Weight* experts1 = nullptr;
  Weight* experts2 = nullptr;
};

class Decoder {
 public:
  Decoder(const plan::ModelSpec& model, const plan::StagePlan& stage, Weights& weights,
          comm::Communicator& expert_group);

  const std::vector<DecoderLayer>& layers() const { return layers_; }
  // x [T, H] -> [T, H]; adds to `losses`.
  at::Tensor forward(const Run& run, const DecoderLayer& layer, const at::Tensor& x,
                     AuxiliaryLosses& losses);
  // First stage: [B, S] ids -> [T, H].
  at::Tensor embed(const Run& run);
  // Last stage: final norm, head, loss.
  at::Tensor head(const Run& run, const at::Tensor& x, Loss& loss, at::Tensor* logits);

 private:
  at::Tensor attend(const Run& run, const DecoderLayer& layer, const at::Tensor& x);
  at::Tensor experts(const Run& run, const DecoderLayer& layer, const Split& input,
                     AuxiliaryLosses& losses);

  const plan::ModelSpec& model_;
  comm::Communicator& expert_group_;
  RopeTables rope_;
  std::vector<DecoderLayer> layers_;
  Weight* words_ = nullptr;
  Weight* positions_ = nullptr;
  NormWeights final_norm_;
  Weight* head_ = nullptr;
};

}  // namespace rr::model
