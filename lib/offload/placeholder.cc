// Placeholder of the room until its first file stands.
#include "offload/offload.h"
