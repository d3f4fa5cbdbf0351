// The runtime objects of one rank, built from the Plan in one visible order.
#pragma once

#include <chrono>
#include <memory>

#include "base/threads.h"
#include "comm/comm.h"
#include "data/data.h"
#include "device/device.h"
#include "model/model.h"
#include "offload/offload.h"
#include "optim/optim.h"
#include "plan/plan.h"

namespace rr::train {

// Torch's allocator reports to the device; here it stops before the device goes.
struct TorchGlobals {
  TorchGlobals(device::Device& device, int threads) {
    model::install_torch_globals(device, threads);
  }
  ~TorchGlobals() { model::release_torch_globals(); }
  TorchGlobals(const TorchGlobals&) = delete;
  TorchGlobals& operator=(const TorchGlobals&) = delete;
};

// Destroyed in reverse order: what comes later may use what stands above it.
struct Runtime {
  const plan::Plan& plan;
  plan::RankPlan rank;
  int num_threads = 1;  // of this rank, torch's and the optimizer's
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  comm::Groups groups;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<TorchGlobals> torch;
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<data::Samples> train_samples, valid_samples;  // where reads_data()
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<offload::Store> store;
  std::unique_ptr<model::Model> model;

  comm::Communicator& world() const { return groups[plan::Group::world]; }
  bool first_stage() const { return rank.stage == 0; }
  bool last_stage() const { return rank.stage + 1 == plan.topology.pipeline; }
  // Middle stages know shapes and positions from the Plan, unless documents reset them.
  bool reads_data() const {
    return first_stage() || last_stage() || plan.data.reset_position_ids ||
           plan.data.reset_attention_mask;
  }
  bool speaks() const { return rank.rank + 1 == plan.topology.world; }  // prints the training line
};

// Collective. Throws JobFailed on all ranks when any rank cannot: missing or bad data, no memory.
Runtime build(const plan::Plan& plan, comm::World& world);

}  // namespace rr::train
