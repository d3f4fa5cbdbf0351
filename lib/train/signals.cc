// Signal flags.
#include "train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

#include "train/train.h"

namespace rr::train {
namespace {

std::atomic<int> received{0};
std::atomic<bool> polled{false};
static_assert(std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  const bool first = received.exchange(number) == 0;
  if (first && polled) return;
  constexpr std::string_view kText = "stopped by a signal at once\n";
  const auto ignored = write(STDERR_FILENO, kText.data(), kText.size());
  static_cast<void>(ignored);
  _exit(128 + number);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaction(number, &action, nullptr);
}

int signal_received() { return received.load(); }

SignalsPolled::SignalsPolled() { polled = true; }
SignalsPolled::~SignalsPolled() { polled = false; }

}  // namespace rr::train
