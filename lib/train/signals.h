// The flag behind install_signal_handlers().
#pragma once

namespace rr::train {

// The number of the signal that arrived, 0 if none.
int signal_received();

// While one lives, somebody asks for signals; without one the first signal ends the process, as
// there is no iteration to finish.
class SignalsPolled {
 public:
  SignalsPolled();
  ~SignalsPolled();
  SignalsPolled(const SignalsPolled&) = delete;
  SignalsPolled& operator=(const SignalsPolled&) = delete;
};

}  // namespace rr::train
