// Placeholder.
#include "comm/comm.h"
