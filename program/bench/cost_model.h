// Predicts the cost of a step of data-parallel training, with the α–β model of messages: for the
// rows that were measured, and for clusters that are not at hand.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/distributed/planner/link_model.h"

namespace ringgrad::program {

// Returns the cost of one message between two neighbours, from the measured cost α + βS of an
// all-reduce of n ranks. It assumes a ring, whose 2(n - 1) messages have S/n bytes each (Patarasuk
// & Yuan 2009).
LinkModel hop_of(const LinkModel& all_reduce, int ranks);

// The functions below return the seconds of an all-reduce of so many bytes. A cluster has nodes of
// `local` ranks each. `near` is a message within a node, `far` one between two nodes, whose wire
// the ranks of a node share.
struct Cluster {
  int nodes = 1;
  int local = 1;
  LinkModel near;
  LinkModel far;
  int ranks() const { return nodes * local; }
};
// Reduce-scatter and all-gather around all ranks, at the pace of the slowest hop: 2(p-1)α +
// 2(p-1)/p Sβ.
double ring(const Cluster& cluster, double bytes);
// Auto takes it if ranks share no memory: every rank sends to all others, all or a slice for
// each.
double direct(const Cluster& cluster, double bytes);
// Reduce-scatter within nodes, direct between nodes, all-gather within: most bytes stay in the
// node.
double hierarchy(const Cluster& cluster, double bytes);

// A model of a step, in seconds. Each bucket has the time at which it is ready, since backward
// began, and the time of its average. `hidden_costs` is the part of an average's time that the
// cores cannot compute, even if backward hides the average.
struct StepModel {
  // The step without communication; the last gradient in its backward.
  double alone = 0;
  double computed = 0;
  // By bucket.
  std::vector<double> ready = {};
  std::vector<double> seconds = {};
  // The time for the buffers and the ranks' numbers, which follow the buckets.
  double after = 0;
  double hidden_costs = 0;
};
double overlapped(const StepModel& step);
double one_after_the_other(const StepModel& step);

// Adds "predicted_ms" to the rows of an explained document (ddp_explanation.h), and "costs": α and
// β of the link and of copies, assumptions.
void predict_rows(nlohmann::json& document);

// Predictions for clusters from an explained document with costs. The result has rows of {ranks,
// nodes, ring_ms, direct_ms, hierarchy_ms, best, step_ms, kept_of_no_communication,
// images_per_second}, and the assumptions in words. Every rank keeps its batch. All nodes have
// equally many ranks.
struct Prediction {
  // As many nodes as ranks, one number for all, or none: then nodes are as large as this machine's
  // group.
  std::vector<int> ranks;
  std::vector<int> nodes;
  double network_us;
  double network_gbit;
};
// Returns the number of nodes for each number of ranks. Throws UsageError if the ranks do not
// divide by the nodes.
std::vector<int> nodes_of(const Prediction& wanted, int measured_ranks);
// Throws as nodes_of(), and UsageError if ddp's rows are missing.
nlohmann::json predict_clusters(const nlohmann::json& document, const Prediction& wanted);

}  // namespace ringgrad::program
