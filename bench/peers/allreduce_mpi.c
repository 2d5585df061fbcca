/* MPI_Allreduce in place, float32 sums; prints JSON rows like those of `ringgrad bench allreduce --json`. Arguments:
   seconds per size, the least number of repetitions, then sizes in bytes. Compiled and run by allreduce_mpi.sh. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double once(float* x, int count) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return MPI_Wtime() - start;
}

static void measure(size_t bytes, double seconds, int least, int last) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int count = (int)(bytes / 4);
  float* x = malloc(bytes);
  for (int i = 0; i < count; ++i) x[i] = (float)(i % 1000 * (rank + 1));
  once(x, count);
  int wrong = 0;
  for (int i = 0; i < count; ++i) wrong += x[i] != (float)(i % 1000 * (size * (size + 1) / 2));
  memset(x, 0, bytes);
  for (int i = 0; i < 5 && i < least; ++i) once(x, count);
  double total = once(x, count);
  MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  const double estimate = seconds * size / total;
  int repetitions = estimate < least ? least : estimate > 100000 ? 100000 : (int)estimate;
  double* times = malloc(sizeof(double) * (size_t)repetitions);
  for (int i = 0; i < repetitions; ++i) times[i] = once(x, count);
  MPI_Allreduce(MPI_IN_PLACE, times, repetitions, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < repetitions; ++i) times[i] /= size;
  qsort(times, (size_t)repetitions, sizeof(double), ascending);
  const double median = times[repetitions / 2], bandwidth = (double)bytes / median / 1e9;
  if (rank == 0)
    printf(
        "    {\"bytes\": %zu, \"time_us\": %.2f, \"quartiles_us\": [%.2f, %.2f], \"algbw_GBps\": %.3f, "
        "\"busbw_GBps\": %.3f, \"repetitions\": %d, \"wrong\": %d}%s\n",
        bytes, median * 1e6, times[repetitions / 4] * 1e6, times[repetitions * 3 / 4] * 1e6, bandwidth,
        bandwidth * 2 * (size - 1) / size, repetitions, wrong, last ? "" : ",");
  free(times);
  free(x);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, length;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\n")] = 0;
  if (rank == 0) printf("{\n  \"peer\": \"%s\",\n  \"ranks\": %d,\n  \"rows\": [\n", version, size);
  for (int i = 3; i < argc; ++i)
    measure(strtoull(argv[i], NULL, 10), atof(argv[1]), atoi(argv[2]), i + 1 == argc);
  if (rank == 0) printf("  ]\n}\n");
  MPI_Finalize();
  return 0;
}
