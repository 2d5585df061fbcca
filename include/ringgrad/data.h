// Data sets and batches.
#pragma once

#include "ringgrad/data/batch_part_sampler.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/dataset.h"
#include "ringgrad/data/drawing_samplers.h"
#include "ringgrad/data/image_grid.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/data/resident_batches.h"
#include "ringgrad/data/shard_digest.h"
