// A stand-in for a model that stores its activations: every byte is a known function of its place,
// storage is scribbled over before it is given back, and reads are compared.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "device/device.h"
#include "offload/offload.h"

namespace rr::test {

struct Shape {
  int layers = 4;
  int offloaded = 4;                                             // the first so many
  std::vector<std::int64_t> piece_bytes = {40'000, 0, 1, 4097};  // what a layer saves
};

class Rehearsal {
 public:
  Rehearsal(device::Device& device, offload::Store& store, Shape shape)
      : device_(device), store_(store), shape_(std::move(shape)) {}

  void forward(int micro_batch, int chunk = 0) {
    for (int layer = 0; layer < shape_.layers; ++layer) {
      const offload::Region region{micro_batch, chunk, layer};
      for (std::size_t i = 0; i < shape_.piece_bytes.size(); ++i) {
        const Span span = device_.allocate(Pool::device, shape_.piece_bytes[i], "activation");
        write(span, region, i);
        if (layer < shape_.offloaded) {
          tickets_[region].push_back(store_.put(region, span, [this, span] { free(span); }));
        } else {
          kept_[region].push_back(span);
        }
      }
      store_.end_layer(region);
    }
  }

  void backward(int micro_batch, int chunk = 0) {
    for (int layer = shape_.layers - 1; layer >= 0; --layer) {
      const offload::Region region{micro_batch, chunk, layer};
      store_.prefetch(region, allocate());
      store_.prefetch({micro_batch, chunk, layer - 1}, allocate());
      for (std::size_t i = shape_.piece_bytes.size(); i-- > 0;) {
        const Span span = layer < shape_.offloaded
                              ? store_.get(region, tickets_[region][i], allocate())
                              : kept_[region][i];
        check(span, region, i);
        free(span);
      }
      tickets_.erase(region);
      kept_.erase(region);
      store_.drop(region);
    }
  }

  // 1F1B with `ahead` micro-batches in flight before the first backward.
  void run(int micro_batches, int ahead) {
    for (int i = 0; i < micro_batches + ahead; ++i) {
      if (i < micro_batches) forward(i);
      if (i >= ahead) backward(i - ahead);
    }
  }

  std::int64_t wrong_bytes() const { return wrong_bytes_; }
  std::int64_t checked_bytes() const { return checked_bytes_; }

  offload::Store::Allocate allocate() {
    return [this](std::int64_t bytes) {
      return device_.allocate(Pool::device, bytes, "reloaded activation");
    };
  }
  // Whoever still copies from or to it copies nonsense.
  void free(Span span) {
    for (std::int64_t i = 0; i < span.bytes; ++i) span.data[i] = std::byte{0xdd};
    device_.release(span);
  }

  static std::byte value(const offload::Region& region, std::size_t piece, std::int64_t i) {
    return static_cast<std::byte>((region.micro_batch * 53 + region.chunk * 29 + region.layer * 17 +
                                   static_cast<std::int64_t>(piece) * 7 + i * 3) %
                                  211);
  }
  static void write(Span span, const offload::Region& region, std::size_t piece) {
    for (std::int64_t i = 0; i < span.bytes; ++i) span.data[i] = value(region, piece, i);
  }
  void check(Span span, const offload::Region& region, std::size_t piece) {
    for (std::int64_t i = 0; i < span.bytes; ++i) {
      ++checked_bytes_;
      if (span.data[i] != value(region, piece, i)) ++wrong_bytes_;
    }
  }

 private:
  device::Device& device_;
  offload::Store& store_;
  Shape shape_;
  std::map<offload::Region, std::vector<offload::Ticket>> tickets_;
  std::map<offload::Region, std::vector<Span>> kept_;
  std::int64_t wrong_bytes_ = 0, checked_bytes_ = 0;
};

}  // namespace rr::test
