// Placeholder of the room until its first file stands.
#include "report/report.h"
