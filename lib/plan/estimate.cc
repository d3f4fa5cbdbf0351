// Predicted time of a step: a walk of the same step lists that the executor runs.
//
// Several iterations are walked one after another, since a step's end overlaps the next forward;
// the distance between the ends of the last two is the answer.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "plan/costs.h"
#include "plan/planner.h"

namespace rr::plan {

namespace {

struct StageState {
  StageCost cost;
  StepCost step;
  std::vector<Step> steps;
  std::vector<ShardRange> shard;
  double clock = 0;
  double busy = 0;  // compute of this iteration
  double last_backward_begin = 0;
  double out = 0, back = 0;     // when the activations' copies so far are done
  std::map<int, double> ready;  // layer -> when its weights are there
  std::size_t next = 0;
};

class Walk {
 public:
  Walk(const Plan& plan, const recipe::Machine& machine, OffloadPolicy policy)
      : plan_(plan), policy_(policy) {
    const int stage_size = plan.topology.world / plan.topology.pipeline;
    for (int s = 0; s < plan.topology.pipeline; ++s) {
      StageState& state = stages_.emplace_back();
      state.cost = stage_cost(plan, s, machine);
      state.step = step_cost(plan, machine, policy == OffloadPolicy::megatron);
      state.steps = stage_schedule(plan, s);
      state.shard = rank_plan(plan, s * stage_size).shard;
    }
  }

  // One iteration; returns when the slowest stage has finished its backwards.
  double iterate(Estimate& estimate) {
    const double begin = end_;
    for (StageState& stage : stages_) {
      stage.next = 0;
      stage.busy = 0;
    }
    std::size_t done = 0;
    for (bool progress = true; progress && done < stages_.size();) {
      progress = false;
      for (std::size_t s = 0; s < stages_.size(); ++s)
        progress |= advance(static_cast<int>(s), done);
    }
    RR_CHECK(done == stages_.size(), "the schedule deadlocks");
    double end = 0, busiest = 0;
    for (const StageState& stage : stages_) {
      end = std::max(end, stage.clock);
      busiest = std::max(busiest, stage.busy);
    }
    for (StageState& stage : stages_)
      estimate.reduce_ms = std::max(estimate.reduce_ms, 1e3 * reduce_gradients(stage));
    // The norm needs every rank's gradients.
    double norm = 0;
    for (const StageState& stage : stages_) norm = std::max(norm, stage.clock);
    for (StageState& stage : stages_) optimize(stage, norm, estimate);
    estimate.compute_ms = 1e3 * busiest;
    estimate.step_ms = 1e3 * (end - begin);
    end_ = end;
    return end;
  }

 private:
  // Runs steps of stage `s` until one has to wait for a message.
  bool advance(int s, std::size_t& done) {
    StageState& stage = stages_[static_cast<std::size_t>(s)];
    const bool was_done = stage.next == stage.steps.size();
    bool progress = false;
    while (stage.next < stage.steps.size()) {
      const Step& step = stage.steps[stage.next];
      if (!execute(stage, s, step)) break;
      ++stage.next;
      progress = true;
    }
    if (!was_done && stage.next == stage.steps.size()) ++done;
    return progress;
  }

  bool execute(StageState& stage, int s, const Step& step) {
    const int stages = plan_.topology.pipeline;
    switch (step.kind) {
      case StepKind::receive_forward:
      case StepKind::receive_backward: {
        const auto it = messages_.find(
            {s, step.kind == StepKind::receive_forward, step.micro_batch, step.chunk});
        if (it == messages_.end()) return false;
        stage.clock = std::max(stage.clock, it->second);
        messages_.erase(it);
        return true;
      }
      case StepKind::send_forward:
      case StepKind::send_backward: {
        const bool forward = step.kind == StepKind::send_forward;
        const int place = step.chunk * stages + s + (forward ? 1 : -1);
        messages_[{place % stages, forward, step.micro_batch, place / stages}] =
            stage.clock + stage.cost.message_s;
        return true;
      }
      case StepKind::forward:
        forward(stage, step.chunk);
        return true;
      case StepKind::backward:
        backward(stage, step.chunk);
        return true;
    }
    return true;
  }

  void forward(StageState& stage, int chunk) const {
    for (const LayerCost& layer : stage.cost.chunks[static_cast<std::size_t>(chunk)]) {
      stage.clock = std::max(stage.clock, stage.ready[layer.layer]) + layer.forward_s;
      stage.busy += layer.forward_s;
      if (layer.moved_s > 0) stage.out = std::max(stage.out, stage.clock) + layer.moved_s;
    }
  }

  // Activations come back one layer ahead.
  void backward(StageState& stage, int chunk) const {
    stage.last_backward_begin = stage.clock;
    const std::vector<LayerCost>& layers = stage.cost.chunks[static_cast<std::size_t>(chunk)];
    double asked = stage.clock;
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      if (layer->moved_s > 0) {
        stage.back = std::max({stage.back, stage.out, asked}) + layer->moved_s;
        stage.clock = std::max(stage.clock, stage.back);
      }
      asked = stage.clock;
      stage.clock += layer->backward_s;
      stage.busy += layer->backward_s;
    }
  }

  // Gradients go bucket by bucket during the last backward. Returns what sticks out of it.
  double reduce_gradients(StageState& stage) const {
    const double hidden = stage.clock - stage.last_backward_begin;
    const double extra = std::max(stage.cost.reduce_s - hidden, 0.0);
    stage.clock += extra;
    return extra;
  }

  void optimize(StageState& stage, double norm, Estimate& estimate) {
    double on_device = 0, on_host = 0;
    for (const ShardRange& range : stage.shard) {
      (range.home == Home::device ? on_device : on_host) +=
          static_cast<double>(range.end - range.begin);
    }
    const StepCost& c = stage.step;
    estimate.device_adam_ms = std::max(estimate.device_adam_ms, 1e3 * on_device * c.device_s);
    estimate.d2h_ms = std::max(estimate.d2h_ms, 1e3 * on_host * c.down_s);
    estimate.host_adam_ms = std::max(estimate.host_adam_ms, 1e3 * on_host * c.host_s);
    estimate.h2d_ms = std::max(estimate.h2d_ms, 1e3 * on_host * c.up_s);
    switch (policy_) {
      case OffloadPolicy::ours:
        step_in_order(stage, norm, on_host);
        break;
      case OffloadPolicy::megatron: {
        // The overlap hides copies behind the host's Adam, or the other way round.
        const double host = on_host * c.host_s, copies = on_host * (c.down_s + c.up_s);
        stage.clock =
            norm + std::max(on_device * c.device_s,
                            plan_.optimizer.overlap ? std::max(host, copies) : host + copies);
        std::vector<double> written(stage.shard.size(), stage.clock);
        gather(stage, written);
        break;
      }
    }
  }

  // Ranges are stepped in forward order, and the next forward begins after the last one. With
  // overlap the gradients were copied down under the last backward, latest layer first, and
  // weights go up while the next range is stepped.
  void step_in_order(StageState& stage, double norm, double on_host) const {
    const StepCost& c = stage.step;
    const bool overlap = plan_.optimizer.overlap;
    double at = norm;
    if (overlap && on_host > 0) at = std::max(at, stage.last_backward_begin + on_host * c.down_s);
    double link = at;
    std::vector<double> written;
    for (const ShardRange& range : stage.shard) {
      const auto count = static_cast<double>(range.end - range.begin);
      if (range.home == Home::device) {
        written.push_back(at += count * c.device_s);
        continue;
      }
      at += count * (overlap ? c.host_s : c.down_s + c.host_s + c.up_s);
      link = overlap ? std::max(link, at) + count * c.up_s : at;
      written.push_back(link);
    }
    stage.clock = at;
    gather(stage, written);
  }

  // Weights reach the replicas bucket by bucket, under the next forward. `written`: when each range
  // of the shard is stepped and back on the device.
  void gather(StageState& stage, const std::vector<double>& written) const {
    const StagePlan& plan = plan_.stages[static_cast<std::size_t>(&stage - stages_.data())];
    double elements = 0, clock = 0;
    for (const ShardRange& range : stage.shard)
      elements += static_cast<double>(range.end - range.begin);
    stage.ready.clear();
    for (std::size_t i = 0; i < stage.shard.size(); ++i) {
      const ShardRange& range = stage.shard[i];
      const auto count = static_cast<double>(range.end - range.begin);
      clock = std::max(clock, written[i]) + stage.cost.gather_s * count / elements;
      const Bucket& bucket = plan.buffers[static_cast<std::size_t>(range.buffer)]
                                 .buckets[static_cast<std::size_t>(range.bucket)];
      for (int layer = bucket.first_layer; layer <= bucket.last_layer; ++layer) {
        double& ready = stage.ready[layer];
        ready = std::max(ready, clock);
      }
    }
  }

  const Plan& plan_;
  OffloadPolicy policy_;
  std::vector<StageState> stages_;
  std::map<std::tuple<int, bool, int, int>, double> messages_;
  double end_ = 0;
};

}  // namespace

bool can_estimate(const recipe::Machine& machine) {
  return machine.device_tflops > 0 && machine.link_gbps > 0 && machine.host_core_gparams > 0;
}

Estimate estimate(const Plan& plan, const recipe::Machine& machine, OffloadPolicy policy) {
  RR_CHECK(can_estimate(machine), "a machine without rates");
  Walk walk(plan, machine, policy);
  Estimate result;
  for (int i = 0; i < 4; ++i) {
    result = {};
    walk.iterate(result);
  }
  return result;
}

}  // namespace rr::plan
