// Signal flags.
#include "train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "train/train.h"

namespace rr::train {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  if (received.exchange(number) != 0) _exit(128 + number);
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

}  // namespace rr::train
