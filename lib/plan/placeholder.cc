// Placeholder of the room until its first file stands.
#include "plan/plan.h"
