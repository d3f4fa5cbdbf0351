// The flag behind install_signal_handlers().
#pragma once

namespace rr::train {

// The number of the signal that arrived, 0 if none.
int signal_received();

}  // namespace rr::train
