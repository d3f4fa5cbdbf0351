// Pack and unpack hooks over the store.
#include "model/saved_tensors.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <utility>

namespace rr::model {

namespace {

// Layout of a tensor over a storage.
struct View {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  at::TensorOptions options;
};

class Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(SavedTensors& owner) : owner_(owner) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    piece_ = owner_.put(tensor);
    if (piece_ == nullptr) {
      kept_ = tensor.detach();
      return;
    }
    view_ = {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(),
             tensor.options()};
  }

  at::Tensor call_unpack_hook() override {
    if (piece_ == nullptr) return kept_;
    owner_.restore(*piece_);
    return at::empty({0}, view_.options)
        .set_(piece_->restored.storage(), view_.offset, view_.sizes, view_.strides);
  }

 private:
  SavedTensors& owner_;
  std::shared_ptr<SavedTensors::Piece> piece_;
  View view_;
  at::Tensor kept_;
};

// Memory that torch's allocator gave: only that is ours to give back. Weights and slabs are
// borrowed.
bool owned(const at::Tensor& tensor) {
  return tensor.storage().data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter();
}

}  // namespace

SavedTensors::SavedTensors(offload::Store& store, std::set<int> layers, std::int64_t min_elements)
    : store_(store), layers_(std::move(layers)), min_elements_(min_elements) {
  RR_CHECK(torch_globals_installed(), "install_torch_globals comes before an activation store");
}

SavedTensors::~SavedTensors() {
  for (const offload::Region& region : live_) store_.drop(region);
}

std::unique_ptr<torch::autograd::SavedVariableHooks> SavedTensors::make() {
  return std::make_unique<Hooks>(*this);
}

void SavedTensors::begin_layer(int micro_batch, int layer) {
  current_ = {micro_batch, 0, layer};
  if (layers_.contains(layer)) set_hook_factory(this);
}

void SavedTensors::end_layer() {
  set_hook_factory(nullptr);
  put_.clear();
  store_.end_layer(current_);
}

std::shared_ptr<SavedTensors::Piece> SavedTensors::put(const at::Tensor& tensor) {
  if (tensor.numel() < min_elements_ || tensor.numel() == 0 || !tensor.is_cpu()) return nullptr;
  if (!owned(tensor)) return nullptr;
  const c10::Storage& storage = tensor.storage();
  std::shared_ptr<Piece>& piece = put_[storage.unsafeGetStorageImpl()];
  if (piece != nullptr) return piece;
  // The storage stays alive, and its address unique, until the store says it has left.
  const auto holder = std::make_shared<c10::Storage>(storage);
  const Span bytes{static_cast<std::byte*>(storage.mutable_data()),
                   static_cast<std::int64_t>(storage.nbytes()), Pool::device};
  live_.insert(current_);
  const offload::Ticket ticket =
      store_.put(current_, bytes, [holder] { *holder = c10::Storage(); });
  piece = std::make_shared<Piece>(Piece{this, current_, ticket, {}});
  return piece;
}

Span SavedTensors::allocate(const offload::Region& region, std::int64_t bytes) {
  at::Tensor memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
  auto* data = static_cast<std::byte*>(memory.mutable_data_ptr());
  coming_[data] = {region, std::move(memory)};
  return {data, bytes, Pool::device};
}

void SavedTensors::prefetch(const offload::Region& region) {
  if (!live_.contains(region)) return;
  store_.prefetch(region, [&](std::int64_t bytes) { return allocate(region, bytes); });
}

void SavedTensors::before_backward(int micro_batch, int layer) {
  prefetch({micro_batch, 0, layer});
  prefetch({micro_batch, 0, layer - 1});
}

void SavedTensors::restore(Piece& piece) {
  if (piece.restored.defined()) return;
  const Span span = store_.get(piece.region, piece.ticket,
                               [&](std::int64_t bytes) { return allocate(piece.region, bytes); });
  auto found = coming_.extract(span.data);
  RR_CHECK(!found.empty(), "memory of a returning activation");
  piece.restored = std::move(found.mapped().second);
}

void SavedTensors::drop(int micro_batch, int layer) {
  const offload::Region region{micro_batch, 0, layer};
  if (live_.erase(region) == 0) return;
  store_.drop(region);
  std::erase_if(coming_, [&](const auto& entry) { return entry.second.first == region; });
}

}  // namespace rr::model
