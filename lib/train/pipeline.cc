// The pipeline executor.
//
// Sends never block: a sent tensor is kept until the schedule proves that its receiver has it, so
// no order of the step list can deadlock.
#include "train/pipeline.h"

#include <ATen/ATen.h>

#include <map>
#include <span>

namespace rr::train {
namespace {

using plan::StepKind;

constexpr int kForwardTag = 0, kBackwardTag = 1;

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// A tensor on its way to another stage.
struct InFlight {
  at::Tensor tensor;
  std::unique_ptr<comm::Pending> pending;
};

class Execution {
 public:
  Execution(Runtime& runtime, const data::Samples* samples, std::int64_t consumed,
            std::int64_t micro_batch_size, std::int64_t global_batch, data::AtEnd at_end)
      : runtime_(runtime),
        samples_(samples),
        at_end_(at_end),
        consumed_(consumed),
        micro_batch_size_(micro_batch_size),
        loss_scale_(static_cast<double>(micro_batch_size) / static_cast<double>(global_batch)),
        pipeline_(runtime.groups[plan::Group::pipeline]) {}

  Losses run(const std::vector<plan::Step>& steps, bool training);

 private:
  void execute(const plan::Step& step, bool training, int num_backwards);
  void forward(int micro_batch, bool training);
  void backward(int micro_batch, bool last);
  void send(const at::Tensor& tensor, int peer, int tag, std::map<int, InFlight>& in_flight,
            int micro_batch);
  at::Tensor receive(int peer, int tag) const;
  model::Tokens read(int micro_batch) const;

  Runtime& runtime_;
  const data::Samples* samples_;
  data::AtEnd at_end_;
  std::int64_t consumed_, micro_batch_size_;
  double loss_scale_;
  comm::Communicator& pipeline_;
  Losses losses_;
  int backwards_done_ = 0;
  // By micro-batch.
  std::map<int, at::Tensor> inputs_, outputs_, output_gradients_, input_gradients_;
  std::map<int, InFlight> sent_forward_, sent_backward_;
};

Losses Execution::run(const std::vector<plan::Step>& steps, bool training) {
  int num_backwards = 0;
  for (const plan::Step& step : steps) num_backwards += step.kind == StepKind::backward;
  for (const plan::Step& step : steps) execute(step, training, num_backwards);
  for (auto& [_, flight] : sent_forward_) flight.pending->wait();
  for (auto& [_, flight] : sent_backward_) flight.pending->wait();
  return losses_;
}

void Execution::execute(const plan::Step& step, bool training, int num_backwards) {
  const int stage = runtime_.rank.stage, m = step.micro_batch;
  switch (step.kind) {
    case StepKind::receive_forward:
      inputs_[m] = receive(stage - 1, kForwardTag);
      break;
    case StepKind::forward:
      forward(m, training);
      break;
    case StepKind::send_forward:
      send(outputs_.at(m), stage + 1, kForwardTag, sent_forward_, m);
      outputs_.erase(m);
      break;
    case StepKind::receive_backward:
      output_gradients_[m] = receive(stage + 1, kBackwardTag);
      // The gradient of m proves that the next stage has m.
      sent_forward_.at(m).pending->wait();
      sent_forward_.erase(m);
      break;
    case StepKind::backward:
      ++backwards_done_;
      backward(m, backwards_done_ == num_backwards);
      break;
    case StepKind::send_backward:
      send(input_gradients_.at(m), stage - 1, kBackwardTag, sent_backward_, m);
      input_gradients_.erase(m);
      // The previous stage holds at most PP micro-batches, so an older gradient has arrived.
      if (const auto old = sent_backward_.find(m - runtime_.plan.topology.pipeline);
          old != sent_backward_.end()) {
        old->second.pending->wait();
        sent_backward_.erase(old);
      }
      break;
  }
}

void Execution::forward(int micro_batch, bool training) {
  const at::Tensor input = inputs_[micro_batch];
  inputs_.erase(micro_batch);
  const model::Tokens tokens = read(micro_batch);
  outputs_[micro_batch] = training
                              ? runtime_.model->forward(micro_batch, tokens, input, loss_scale_)
                              : runtime_.model->evaluate(tokens, input);
  if (!runtime_.last_stage()) return;
  outputs_.erase(micro_batch);
  const model::Loss loss = runtime_.model->loss();
  losses_.sum += loss.sum;
  losses_.num_tokens += loss.num_tokens;
}

void Execution::backward(int micro_batch, bool last) {
  const at::Tensor gradient = output_gradients_[micro_batch];
  output_gradients_.erase(micro_batch);
  input_gradients_[micro_batch] = runtime_.model->backward(micro_batch, gradient, last);
  if (runtime_.first_stage()) input_gradients_.erase(micro_batch);
}

void Execution::send(const at::Tensor& tensor, int peer, int tag,
                     std::map<int, InFlight>& in_flight, int micro_batch) {
  InFlight flight{tensor.contiguous(), nullptr};
  flight.pending = pipeline_.send(bytes_of(flight.tensor), peer, tag);
  in_flight.emplace(micro_batch, std::move(flight));
}

at::Tensor Execution::receive(int peer, int tag) const {
  const plan::ModelSpec& model = runtime_.plan.model;
  const auto dtype = model.compute == DType::bf16 ? at::kBFloat16 : at::kFloat;
  at::Tensor tensor =
      at::empty({micro_batch_size_ * model.seq_length, model.hidden}, at::TensorOptions(dtype));
  pipeline_.receive(bytes_of(tensor), peer, tag);
  return tensor;
}

model::Tokens Execution::read(int micro_batch) const {
  if (!runtime_.reads_data()) return {};
  const comm::Communicator& replicas = runtime_.groups[plan::Group::data];
  const data::Batch batch = data::read_batch(*samples_, consumed_, micro_batch, micro_batch_size_,
                                             replicas.rank(), replicas.size(), at_end_);
  const std::vector<std::int64_t> shape = {batch.num_sequences, batch.seq_length};
  const auto tensor = [&](const auto& values, at::ScalarType type) {
    if (values.empty()) return at::Tensor();
    return at::from_blob(const_cast<void*>(static_cast<const void*>(values.data())), shape,
                         at::TensorOptions(type))
        .clone();
  };
  return {.tokens = tensor(batch.tokens, at::kLong),
          .labels = tensor(batch.labels, at::kLong),
          .positions = tensor(batch.positions, at::kLong),
          .loss_mask = tensor(batch.loss_mask, at::kFloat),
          .document_starts = tensor(batch.document_starts, at::kLong)};
}

}  // namespace

Losses run_training_schedule(Runtime& runtime, std::int64_t consumed) {
  const plan::BatchPlan& batch = runtime.plan.batch;
  return Execution(runtime, runtime.train_samples.get(), consumed, batch.micro_batch,
                   batch.global_batch, data::AtEnd::refuse)
      .run(runtime.rank.training, true);
}

Losses run_evaluation_schedule(Runtime& runtime, std::int64_t consumed) {
  const plan::BatchPlan& batch = runtime.plan.batch;
  return Execution(runtime, runtime.valid_samples.get(), consumed, batch.eval_micro_batch,
                   batch.eval_global_batch, data::AtEnd::wrap)
      .run(runtime.rank.evaluation, false);
}

}  // namespace rr::train
