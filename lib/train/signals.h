// Polite stopping: the first INT, TERM, USR1 or USR2 raises a flag that all ranks agree on between
// iterations; the second one ends the process at once.
#pragma once

namespace rr::train {

// Installs the handlers. Call before MPI starts, so that an early signal is not lost.
void install_signal_handlers();

// The number of the signal that arrived, 0 if none.
int signal_received();

}  // namespace rr::train
