// The activation store: what is on its way out, what is away, what is on its way back.
#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "offload/offload.h"
#include "offload/slabs.h"

namespace rr::offload {

using device::Event;
using device::Stream;

namespace {

struct Piece {
  Span source;  // device memory on the way out
  std::function<void()> release;
  Span slab;  // at least `source.bytes` of host memory
  Event out;
  bool left = false;  // the way out has ended and the device storage is released
  Span back;          // device memory of the caller
  Event in;
  bool started = false;  // the way back is queued
  bool returned = false;
  bool failed = false;
};

std::string to_string(const Region& region) {
  return fmt::format("micro-batch {}, chunk {}, layer {}", region.micro_batch, region.chunk,
                     region.layer);
}

// Runs all of `steps` even when one throws; then rethrows the first exception.
class FirstFailure {
 public:
  template <class Call>
  void attempt(const Call& call) {
    try {
      call();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
  }
  bool any() const { return failure_ != nullptr; }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace

struct Store::State {
  State(device::Device& of, bool retain) : device(of), slabs(of, retain) {}

  device::Device& device;
  Slabs slabs;
  std::map<Region, std::deque<Piece>> regions;    // deques: pieces stay where they are
  std::deque<std::pair<Region, Piece*>> leaving;  // in the order of their copies
  Totals totals;

  void wait_on_compute(const Event& event) {
    const auto begin = std::chrono::steady_clock::now();
    const auto count = [&] {
      totals.exposed_ms +=
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
              .count();
    };
    try {
      device.wait(Stream::compute, event);
    } catch (...) {
      count();
      throw;
    }
    count();
  }

  // Ends a piece's way out: after the copy, and even when it failed, its storage is released.
  void see_out(Piece& piece) {
    if (piece.left) return;
    piece.left = true;
    FirstFailure failure;
    failure.attempt([&] { wait_on_compute(piece.out); });
    piece.failed = failure.any();
    const std::function<void()> release = std::exchange(piece.release, nullptr);
    if (release) failure.attempt(release);
    failure.rethrow();
  }

  // Ends the way out of every region but (or, with `only`, of none but) `region`.
  void see_out_where(const Region& region, bool only) {
    FirstFailure failure;
    std::deque<std::pair<Region, Piece*>> staying;
    for (const auto& entry : leaving) {
      if ((entry.first == region) == only) {
        failure.attempt([&] { see_out(*entry.second); });
      } else {
        staying.push_back(entry);
      }
    }
    leaving = std::move(staying);
    failure.rethrow();
  }

  void start_back(Piece& piece, const Region& region, const Allocate& allocate) {
    if (piece.started) return;
    if (piece.failed) {
      throw Error(fmt::format("activation store: {} bytes of {} never reached the host",
                              piece.source.bytes, to_string(region)));
    }
    piece.back = allocate(piece.source.bytes);
    RR_CHECK(piece.back.bytes == piece.source.bytes,
             fmt::format("{} bytes for a piece of {}", piece.back.bytes, piece.source.bytes));
    // The new memory may have been in use by compute until now.
    device.wait(Stream::h2d, device.record(Stream::compute));
    device.wait(Stream::h2d, piece.out);
    device.copy(Stream::h2d, piece.back, piece.slab.slice(0, piece.source.bytes));
    piece.in = device.record(Stream::h2d);
    piece.started = true;
    totals.bytes_in += piece.source.bytes;
  }

  // Gives up all that the region holds, whatever its state.
  void forget(const Region region) {
    const auto found = regions.find(region);
    if (found == regions.end()) return;
    FirstFailure failure;
    failure.attempt([&] { see_out_where(region, true); });
    for (Piece& piece : found->second) {
      // A slab may go to the system: the host itself must know that nobody reads or writes it.
      failure.attempt([&] { device.synchronize(piece.out); });
      failure.attempt([&] { device.synchronize(piece.in); });
      slabs.give_back(piece.slab);
    }
    regions.erase(found);
    failure.rethrow();
  }
};

Store::Store(device::Device& device, bool retain_buffers)
    : state_(std::make_unique<State>(device, retain_buffers)) {}

Store::~Store() {
  while (!state_->regions.empty()) {
    try {
      state_->forget(state_->regions.begin()->first);
    } catch (const std::exception& error) {
      log_error(fmt::format("activation store: {}", error.what()));
    }
  }
}

Ticket Store::put(const Region& region, Span bytes, std::function<void()> release) {
  State& state = *state_;
  RR_CHECK(bytes.pool == Pool::device, "only device memory is moved to the host");
  const auto found = state.regions.find(region);
  RR_CHECK(found == state.regions.end() || !found->second.front().started,
           to_string(region) + " is on its way back; drop it before it is stored again");
  const Span slab = state.slabs.take(bytes.bytes);
  std::deque<Piece>& pieces = state.regions[region];
  Piece& piece = pieces.emplace_back();
  piece.source = bytes;
  piece.slab = slab;
  piece.release = std::move(release);
  state.device.wait(Stream::d2h, state.device.record(Stream::compute));
  state.device.copy(Stream::d2h, slab.slice(0, bytes.bytes), bytes);
  piece.out = state.device.record(Stream::d2h);
  state.leaving.emplace_back(region, &piece);
  state.totals.bytes_out += bytes.bytes;
  return static_cast<Ticket>(pieces.size()) - 1;
}

void Store::end_layer(const Region& region) { state_->see_out_where(region, false); }

void Store::prefetch(const Region& region, const Allocate& allocate) {
  const auto found = state_->regions.find(region);
  if (found == state_->regions.end()) return;
  state_->see_out_where(region, true);
  for (Piece& piece : found->second) state_->start_back(piece, region, allocate);
}

Span Store::get(const Region& region, Ticket ticket, const Allocate& allocate) {
  const auto found = state_->regions.find(region);
  RR_CHECK(found != state_->regions.end(), to_string(region) + " is not in the store");
  RR_CHECK(ticket >= 0 && ticket < static_cast<Ticket>(found->second.size()),
           fmt::format("ticket {} of {}", ticket, to_string(region)));
  Piece& piece = found->second[static_cast<std::size_t>(ticket)];
  if (!piece.started) prefetch(region, allocate);
  if (piece.failed) {
    throw Error(fmt::format("activation store: {} bytes of {} did not come back",
                            piece.source.bytes, to_string(region)));
  }
  if (!piece.returned) {
    try {
      state_->wait_on_compute(piece.in);
    } catch (...) {
      piece.failed = true;
      throw;
    }
    piece.returned = true;
  }
  return piece.back;
}

void Store::drop(const Region& region) { state_->forget(region); }

Totals Store::totals() const {
  Totals totals = state_->totals;
  totals.host_peak = state_->slabs.peak();
  return totals;
}

}  // namespace rr::offload
