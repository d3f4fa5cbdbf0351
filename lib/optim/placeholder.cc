// Placeholder of the room until its first file stands.
#include "optim/optim.h"
