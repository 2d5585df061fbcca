// Training on several devices and ranks.
#pragma once

#include "ringgrad/distributed/comm_hook.h"
#include "ringgrad/distributed/data_parallel.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/distributed/powersgd_hook.h"
#include "ringgrad/distributed/sharded_optimizer.h"
#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/nn.h"
