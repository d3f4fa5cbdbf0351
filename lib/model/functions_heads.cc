// Nodes for attention and for the head with its loss.
#include <algorithm>
#include <numeric>

#include "model/attention.h"
#include "model/functions.h"
#include "model/node.h"
#include "model/parallel.h"

namespace rr::model {

namespace {

// ---- from the fused projection to heads ---------------------------------------------------------

struct HeadsNode final : Node {
  HeadsShape shape;  // its tables belong to the model
  at::Tensor positions;
  SavedVariable qkv;
  Weight* q_norm;
  Weight* k_norm;

  variable_list apply(variable_list&& grads) override {
    const at::Tensor input = q_norm == nullptr ? at::Tensor() : qkv.unpack();
    const std::int64_t rows = shape.batch * shape.seq;
    at::Tensor dqkv = empty({rows, (shape.heads + 2 * shape.groups) * shape.dim}, shape.type);
    HeadsBackward args{};
    args.shape = shape;
    args.dq = grads[0].const_data_ptr();
    args.dk = grads[1].const_data_ptr();
    args.dv = grads[2].const_data_ptr();
    args.dqkv = dqkv.data_ptr();
    at::Tensor partials;
    if (q_norm != nullptr) {
      args.qkv = input.const_data_ptr();
      args.dq_weight = q_norm->take();
      args.dk_weight = k_norm->take();
      partials = scratch(partial_rows(rows) * (q_norm->plan->size + k_norm->plan->size));
      args.scratch = partials.mutable_data_ptr<float>();
    }
    heads_backward(args);
    return {dqkv};
  }
  void release_variables() override { qkv.reset_data(); }
};

}  // namespace

Heads split_heads(const Run& run, const at::Tensor& qkv, const HeadsShape& shape, Weight* q_norm,
                  Weight* k_norm) {
  Heads heads;
  heads.q = empty({shape.batch, shape.heads, shape.seq, shape.dim}, run.type);
  heads.k = empty({shape.batch, shape.groups, shape.seq, shape.dim}, run.type);
  heads.v = empty({shape.batch, shape.groups, shape.seq, shape.dim}, run.type);
  HeadsForward args{};
  args.shape = shape;
  args.qkv = qkv.const_data_ptr();
  args.q = heads.q.data_ptr();
  args.k = heads.k.data_ptr();
  args.v = heads.v.data_ptr();
  heads_forward(args);
  if (!run.training) return heads;
  auto node = make_node<HeadsNode>(qkv);
  node->shape = shape;
  node->positions = run.tokens->positions;
  node->q_norm = q_norm;
  node->k_norm = k_norm;
  if (q_norm != nullptr) node->qkv = save(qkv);
  set_output(heads.q, node);
  set_output(heads.k, node);
  set_output(heads.v, node);
  return heads;
}

// ---- attention --------------------------------------------------------------------------------

namespace {

struct AttentionNode final : Node {
  AttentionShape shape;
  at::Tensor starts, log_sum;
  SavedVariable q, k, v, out;

  variable_list apply(variable_list&& grads) override {
    const at::Tensor query = q.unpack(), key = k.unpack(), value = v.unpack();
    const at::Tensor output = out.unpack(shared_from_this());
    at::Tensor dq = empty(query.sizes(), shape.type);
    at::Tensor dk = empty(key.sizes(), shape.type);
    at::Tensor dv = empty(value.sizes(), shape.type);
    const at::Tensor buffer = emulation_scratch(shape.type, attention_backward_scratch(shape));
    AttentionBackward args{};
    args.q = query.const_data_ptr();
    args.k = key.const_data_ptr();
    args.v = value.const_data_ptr();
    args.out = output.const_data_ptr();
    args.dout = grads[0].const_data_ptr();
    args.log_sum = log_sum.const_data_ptr<float>();
    args.dq = dq.data_ptr();
    args.dk = dk.data_ptr();
    args.dv = dv.data_ptr();
    attention_backward(shape, args, buffer.mutable_data_ptr<float>());
    return {dq, dk, dv};
  }
  void release_variables() override {
    for (SavedVariable* saved : {&q, &k, &v, &out}) saved->reset_data();
  }
};

}  // namespace

at::Tensor attention(const Run& run, const Heads& heads, const HeadsShape& shape) {
  AttentionShape args{run.type, shape.batch, shape.seq, shape.heads, shape.groups, shape.dim};
  const at::Tensor& starts = run.tokens->document_starts;
  if (starts.defined()) args.starts = starts.const_data_ptr<std::int64_t>();
  at::Tensor out = empty({run.rows(), shape.heads * shape.dim}, run.type);
  const at::Tensor log_sum = scratch(shape.batch * shape.heads * shape.seq);
  {
    const at::Tensor buffer = emulation_scratch(run.type, attention_forward_scratch(args));
    attention_forward(args, heads.q.const_data_ptr(), heads.k.const_data_ptr(),
                      heads.v.const_data_ptr(), out.data_ptr(), log_sum.mutable_data_ptr<float>(),
                      buffer.mutable_data_ptr<float>());
  }
  if (!run.training) return out;
  auto node = make_node<AttentionNode>(heads.q, heads.k, heads.v);
  node->shape = args;
  node->starts = starts;
  node->log_sum = log_sum;
  node->q = save(heads.q);
  node->k = save(heads.k);
  node->v = save(heads.v);
  set_output(out, node);
  node->out = save(out, true);
  return out;
}

// ---- head and loss ----------------------------------------------------------------------------

namespace {

struct HeadNode final : Node {
  DType type;
  std::int64_t vocab;
  SavedVariable x, dlogits;
  Weight* head;

  variable_list apply(variable_list&&) override {
    const at::Tensor input = x.unpack(), gradient = dlogits.unpack();
    const std::int64_t rows = input.size(0), hidden = input.size(1);
    const Fp32 d32(gradient, type);
    at::Tensor dx = empty(input.sizes(), type);
    {
      const Fp32 w32(head->data(), vocab * hidden, type);
      const at::Tensor acc = type == DType::f32 ? dx : emulation_scratch(type, rows * hidden);
      gemm(rows, hidden, vocab, 1.0F, {d32.data(), vocab}, {w32.data(), hidden}, 0.0F,
           acc.mutable_data_ptr<float>(), hidden);
      if (type != DType::f32) {
        round_to_bf16(acc.const_data_ptr<float>(), dx.data_ptr(), rows * hidden);
      }
    }
    const Fp32 x32(input, type);
    const GradientOut dw = head->take();
    gemm(vocab, hidden, rows, 1.0F, {d32.data(), vocab, true}, {x32.data(), hidden},
         dw.overwrite ? 0.0F : 1.0F, dw.data, hidden);
    // Padded rows never meet the loss.
    if (dw.overwrite) std::fill(dw.data + vocab * hidden, dw.data + head->plan->size, 0.0F);
    return {dx};
  }
  void release_variables() override {
    x.reset_data();
    dlogits.reset_data();
  }
};

// In double, in token order.
Loss add_up(const Run& run, const float* loss) {
  const float* mask = run.tokens->loss_mask.const_data_ptr<float>();
  Loss result;
  for (std::int64_t t = 0; t < run.rows(); ++t) {
    result.sum += static_cast<double>(loss[t]) * mask[t];
    result.num_tokens += mask[t];
  }
  return result;
}

// Masked tokens may carry any label, others one of the vocabulary.
std::vector<std::int64_t> labels_of(const Run& run, std::int64_t vocab) {
  const auto* begin = run.tokens->labels.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> labels(begin, begin + run.rows());
  const float* mask = run.tokens->loss_mask.const_data_ptr<float>();
  for (std::size_t t = 0; t < labels.size(); ++t) {
    const bool inside = labels[t] >= 0 && labels[t] < vocab;
    RR_CHECK(inside || mask[t] == 0, "labels in the vocabulary");
    if (!inside) labels[t] = 0;
  }
  return labels;
}

// Per row, what its loss is multiplied by before backward.
void fill_factors(const Run& run, at::Tensor& factors) {
  const float* mask = run.tokens->loss_mask.const_data_ptr<float>();
  const double tokens = std::accumulate(mask, mask + run.rows(), 0.0);
  const double scale = run.loss_scale / std::max(tokens, 1.0);
  float* out = factors.mutable_data_ptr<float>();
  for (std::int64_t t = 0; t < run.rows(); ++t) out[t] = static_cast<float>(mask[t] * scale);
}

// [T, V] in compute dtype: with bf16 the logits are rounded as a bf16 head would.
at::Tensor logits_of(const Run& run, const at::Tensor& x, const Weight& head, std::int64_t vocab) {
  const std::int64_t rows = x.size(0), hidden = x.size(1);
  at::Tensor logits = empty({rows, vocab}, run.type);
  const Fp32 x32(x, run.type);
  const Fp32 w32(head.data(), vocab * hidden, run.type);
  const at::Tensor acc = run.type == DType::f32 ? logits : scratch(rows * vocab);
  gemm(rows, vocab, hidden, 1.0F, {x32.data(), hidden}, {w32.data(), hidden, true}, 0.0F,
       acc.mutable_data_ptr<float>(), vocab);
  if (run.type != DType::f32) {
    round_to_bf16(acc.const_data_ptr<float>(), logits.data_ptr(), rows * vocab);
  }
  return logits;
}

}  // namespace

at::Tensor head_loss(const Run& run, const at::Tensor& x, Weight& head, std::int64_t vocab,
                     Loss& loss, at::Tensor* logits) {
  at::Tensor scores = logits_of(run, x, head, vocab);
  if (logits != nullptr) *logits = scores.to(at::kFloat, false, true);
  const at::Tensor losses = scratch(run.rows());
  at::Tensor factors = scratch(run.rows());
  if (run.training) fill_factors(run, factors);
  const std::vector<std::int64_t> labels = labels_of(run, vocab);
  cross_entropy(run.type, run.rows(), vocab, scores.data_ptr(), labels.data(),
                run.training ? factors.const_data_ptr<float>() : nullptr,
                losses.mutable_data_ptr<float>());
  loss = add_up(run, losses.const_data_ptr<float>());
  at::Tensor result = at::full({}, loss.sum, at::TensorOptions().dtype(at::kFloat));
  if (!run.training) return result;
  auto node = make_node<HeadNode>(x);
  node->type = run.type;
  node->vocab = vocab;
  node->x = save(x);
  node->dlogits = save(scores);
  node->head = &head;
  set_output(result, node);
  return result;
}

}  // namespace rr::model
