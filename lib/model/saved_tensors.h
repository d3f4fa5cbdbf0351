// Between torch's saved tensors and the activation store: which tensors leave, and how they come
// back with their layout. Private to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "model/torch_globals.h"
#include "offload/offload.h"
#include "plan/plan.h"

namespace rr::model {

// Tensors saved between begin_layer and end_layer of the first n layers of the stage go to the
// store, whole storages at a time, each storage once. What stays: borrowed memory (weights, slabs),
// small tensors, other layers.
class SavedTensors final : public HookFactory {
 public:
  // `layers`: ids of the layers whose tensors leave.
  SavedTensors(offload::Store& store, std::set<int> layers, std::int64_t min_elements);
  ~SavedTensors() override;

  // Forward.
  void begin_layer(int micro_batch, int layer);
  void end_layer();
  // Backward: `layer` is about to start; brings back it and the one before.
  void before_backward(int micro_batch, int layer);
  // The layer's backward has run.
  void drop(int micro_batch, int layer);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override;

  // One storage that left.
  struct Piece {
    SavedTensors* owner;
    offload::Region region;
    offload::Ticket ticket;
    at::Tensor restored;  // [bytes] u8, once it is back
  };
  // nullptr for a tensor that stays.
  std::shared_ptr<Piece> put(const at::Tensor& tensor);
  void restore(Piece& piece);

 private:
  Span allocate(const offload::Region& region, std::int64_t bytes);
  void prefetch(const offload::Region& region);

  offload::Store& store_;
  std::set<int> layers_;
  std::int64_t min_elements_;
  offload::Region current_;
  std::map<const void*, std::shared_ptr<Piece>> put_;  // of the current layer, by storage
  std::set<offload::Region> live_;
  std::map<std::byte*, std::pair<offload::Region, at::Tensor>> coming_;  // by data pointer
};

}  // namespace rr::model
