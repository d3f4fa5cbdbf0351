// Placeholder.
#include "optim/optim.h"
