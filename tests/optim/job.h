// A small model, a layout, and one rank's optimizer over it, stepped with made-up gradients: for
// the one-rank and the MPI tests.
//
// Gradients and weights are functions of (tensor, element of the full tensor, replica, step), so
// any layout can be compared with one rank that adds its replicas' gradients up itself, in their
// order.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "comm/comm.h"
#include "device/device.h"
#include "optim/optim.h"
#include "plan/plan.h"

namespace rr::optim::testing {

struct Layout {
  int pipeline = 1, expert = 1, data = 1;
};

inline plan::ModelSpec small_moe(bool tied = false) {
  plan::ModelSpec m;
  m.num_layers = 4;
  m.hidden = 32;
  m.heads = 4;
  m.query_groups = 2;
  m.head_dim = 8;
  m.ffn = 96;
  m.vocab = 97;
  m.padded_vocab = 128;
  m.seq_length = 16;
  m.qk_norm = true;
  m.tied = tied;
  m.experts = 4;
  m.experts_per_token = 2;
  m.expert_ffn = 40;
  m.layer_is_moe = {true, false, true, true};
  return m;
}

// `bucket_elements` small enough that a stage has several buckets.
inline plan::Plan make_small_plan(const Layout& layout = {}, bool tied = false,
                                  DType compute = DType::f32,
                                  std::int64_t bucket_elements = 16000) {
  plan::Plan plan;
  plan::Topology& t = plan.topology;
  t.pipeline = layout.pipeline;
  t.data = layout.data;
  t.expert = layout.expert;
  t.world = layout.pipeline * layout.data;
  t.expert_data = layout.data / layout.expert;
  plan.model = small_moe(tied);
  plan.model.compute = compute;
  plan::lay_out(plan, bucket_elements);
  return plan;
}

inline void set_fraction(plan::Plan& plan, double fraction) {
  plan.optimizer.cpu_offload = true;
  plan.optimizer.fraction = fraction;
}

// What the Plan says this room allocates.
inline std::int64_t planned_bytes(const plan::RankPlan& rank, Pool pool) {
  std::int64_t sum = 0;
  for (const plan::MemoryItem& item : rank.memory) {
    if (item.exact && item.pool == pool) sum += item.bytes;
  }
  return sum;
}

// One rank at work. Members in the order they depend on each other.
struct Job {
  plan::Plan plan;
  plan::RankPlan rank;
  std::unique_ptr<device::Device> device;
  ThreadPool threads;
  comm::Groups groups;
  std::unique_ptr<Optimizer> optimizer;

  Job(plan::Plan the_plan, comm::World& world,
      std::unique_ptr<device::Device> the_device = device::make_cpu_device(), int num_threads = 1,
      std::int64_t chunk_elements = 1000)
      : plan(std::move(the_plan)),
        rank(plan::rank_plan(plan, world.rank())),
        device(std::move(the_device)),
        threads(num_threads),
        groups(comm::make_groups(world, plan.topology)),
        optimizer(make_optimizer({plan, rank, *device, groups, threads, chunk_elements})) {}

  const plan::StagePlan& stage() const { return plan.stages[static_cast<std::size_t>(rank.stage)]; }
  float* gradient(const plan::Parameter& p) const {
    return optimizer->gradients(p.buffer).as<float>() + p.offset;
  }
  // The weights of `p`, widened.
  std::vector<float> weight(const plan::Parameter& p) const {
    const Span all = optimizer->weights(p.buffer);
    std::vector<float> values(static_cast<std::size_t>(p.size));
    for (std::int64_t i = 0; i < p.size; ++i) {
      const auto at = static_cast<std::size_t>(i);
      values[at] = plan.model.compute == DType::f32
                       ? all.as<float>()[p.offset + i]
                       : float_from_bf16(all.as<std::uint16_t>()[p.offset + i]);
    }
    return values;
  }
  // Every weight of this rank, by name.
  std::map<std::string, std::vector<float>> weights() const {
    std::map<std::string, std::vector<float>> all;
    for (const plan::Parameter& p : stage().parameters) all[p.name] = weight(p);
    return all;
  }
};

// What replica `replica` adds to the gradient of element `element` of the full tensor: normal, with
// magnitudes over some decades, so that the order of a sum shows.
inline float gradient_of(const RandomStream& stream, std::int64_t element, int replica,
                         std::int64_t step) {
  const auto index = static_cast<std::uint64_t>((element * 16 + replica) * 64 + step);
  const std::uint32_t bits = stream.bits(index);
  const float scale = static_cast<float>(1U << (bits >> 28)) * 1e-5F;
  return (static_cast<float>(bits & 0xffffffU) * 0x1p-23F - 1.0F) * scale;
}

// This rank's gradients for `step`.
inline void fill_gradients(const Job& job, std::int64_t step) {
  for (const plan::Parameter& p : job.stage().parameters) {
    const RandomStream stream(7, p.name);
    const int replica = p.expert ? job.rank.at.expert_data : job.rank.at.data;
    const std::int64_t first = plan::first_element(p, job.rank);
    for (std::int64_t i = 0; i < p.size; ++i) {
      job.gradient(p)[i] = gradient_of(stream, first + i, replica, step);
    }
  }
}

// One rank's gradients as if `layout` had added them: tied copies first, then replicas in order.
inline void fill_summed_gradients(const Job& job, const Layout& layout, std::int64_t step) {
  for (const plan::Parameter& p : job.stage().parameters) {
    const RandomStream stream(7, p.name), copy(7, "output_layer.weight");
    const bool twice =
        job.plan.model.tied && layout.pipeline > 1 && p.name == "embedding.word_embeddings.weight";
    const int replicas = p.expert ? layout.data / layout.expert : layout.data;
    for (std::int64_t i = 0; i < p.size; ++i) {
      float sum = 0;
      for (int r = 0; r < replicas; ++r) {
        float g = gradient_of(stream, i, r, step);
        if (twice) g += gradient_of(copy, i, r, step);
        sum = r == 0 ? g : sum + g;
      }
      job.gradient(p)[i] = sum;
    }
  }
}

// The layers of the last backward, last first.
inline void report_ready(const Job& job) {
  if (job.stage().head) {
    job.optimizer->gradients_ready(static_cast<int>(job.plan.model.num_layers) + 1);
  }
  for (auto layer = job.stage().layers.rbegin(); layer != job.stage().layers.rend(); ++layer) {
    job.optimizer->gradients_ready(*layer);
  }
  if (job.stage().embedding) job.optimizer->gradients_ready(0);
}

// After a step the next backward overwrites the gradients at once.
inline void spoil_gradients(const Job& job) {
  for (std::size_t b = 0; b < job.stage().buffers.size(); ++b) {
    const Span all = job.optimizer->gradients(static_cast<int>(b));
    std::memset(all.data, 0x7f, static_cast<std::size_t>(all.bytes));
  }
  // The padding is never written by a model: it stays zero.
  for (std::size_t b = 0; b < job.stage().buffers.size(); ++b) {
    const Span all = job.optimizer->gradients(static_cast<int>(b));
    std::vector<bool> used(static_cast<std::size_t>(all.bytes / 4));
    for (const plan::Parameter& p : job.stage().parameters) {
      if (p.buffer != static_cast<int>(b)) continue;
      std::fill_n(used.begin() + p.offset, p.size, true);
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) all.as<float>()[i] = 0.0F;
    }
  }
}

inline StepInput input_of(std::int64_t step) {
  return {1e-3 * static_cast<double>(step), 0.1, step};
}

// One iteration up to and with step().
inline StepResult iterate(const Job& job, std::int64_t step, const StepInput& input) {
  job.optimizer->begin();
  fill_gradients(job, step);
  report_ready(job);
  const StepResult result = job.optimizer->step(input);
  spoil_gradients(job);
  return result;
}

}  // namespace rr::optim::testing
