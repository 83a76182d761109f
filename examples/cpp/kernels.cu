// Three kernels that call MPI: a ping-pong, a sum over all ranks, heat in a plate.
//
// cupy_kernels.py compiles them by gmpi.cupy_module, nvcc_kernels.py by nvcc (with launch.cu). They
// are twins of examples/pingpong.py and examples/heat.py. Integers are long long, so that Python's
// own are passed as they are.
#include <cooperative_groups.h>
#include "gmpi.cuh"

static __device__ long long now() {
    long long nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

// Two ranks send a message back and forth; one block each.
extern "C" __global__ void pingpong(gmpi_context ctx, char *buf, long long nbytes, long long rounds,
                                    long long *nanoseconds) {
    const long long rank = GMPI_Comm_rank(ctx, GMPI_COMM_WORLD);
    const long long began = now();
    for (long long i = 0; i < rounds; ++i) {
        if (rank == 0) {
            GMPI_Send(ctx, buf, nbytes, GMPI_BYTE, 1, 7, GMPI_COMM_WORLD);
            GMPI_Recv(ctx, buf, nbytes, GMPI_BYTE, 1, 7, GMPI_COMM_WORLD);
        } else {
            GMPI_Recv(ctx, buf, nbytes, GMPI_BYTE, 0, 7, GMPI_COMM_WORLD);
            GMPI_Send(ctx, buf, nbytes, GMPI_BYTE, 0, 7, GMPI_COMM_WORLD);
        }
    }
    if (threadIdx.x == 0) nanoseconds[0] = now() - began;
}

// The sum of n numbers over all ranks, in place, so many times; one block.
extern "C" __global__ void sum(gmpi_context ctx, double *values, long long n, long long rounds,
                               long long *nanoseconds) {
    const long long began = now();
    for (long long i = 0; i < rounds; ++i) {
        GMPI_Allreduce(ctx, GMPI_IN_PLACE, values, n, GMPI_DOUBLE, GMPI_SUM, GMPI_COMM_WORLD);
    }
    if (threadIdx.x == 0) nanoseconds[0] = now() - began;
}

// What heat() needs to know of the plate's part of this rank, with one layer around it.
struct Part {
    long long rows, columns, north, south, west, east, column;  // column: a derived datatype
};

// Sends the outermost points to the neighbours, and receives theirs (one block).
static __device__ void exchange(gmpi_context ctx, double *u, const Part &p) {
    const long long n = p.columns, bottom = (p.rows - 1) * n;
    gmpi_request requests[8] = {
        GMPI_Irecv(ctx, u, n, GMPI_DOUBLE, p.north, 1, GMPI_COMM_WORLD),
        GMPI_Irecv(ctx, u + bottom, n, GMPI_DOUBLE, p.south, 2, GMPI_COMM_WORLD),
        GMPI_Irecv(ctx, u + n, 1, p.column, p.west, 3, GMPI_COMM_WORLD),
        GMPI_Irecv(ctx, u + 2 * n - 1, 1, p.column, p.east, 4, GMPI_COMM_WORLD),
        GMPI_Isend(ctx, u + bottom - n, n, GMPI_DOUBLE, p.south, 1, GMPI_COMM_WORLD),
        GMPI_Isend(ctx, u + n, n, GMPI_DOUBLE, p.north, 2, GMPI_COMM_WORLD),
        GMPI_Isend(ctx, u + 2 * n - 2, 1, p.column, p.east, 3, GMPI_COMM_WORLD),
        GMPI_Isend(ctx, u + n + 1, 1, p.column, p.west, 4, GMPI_COMM_WORLD),
    };
    GMPI_Waitall(ctx, 8, requests);
}

// All steps; every block computes, block 0 communicates. change[k] is the largest change in check
// k, of all ranks: not negative, so its bits are in the order of the numbers.
extern "C" __global__ void heat(gmpi_context ctx, double *u, double *v, long long rows,
                                long long columns, long long north, long long south,
                                long long west, long long east, long long column, double *change,
                                double tolerance, long long every, long long limit,
                                long long *steps) {
    const auto grid = cooperative_groups::this_grid();
    const Part part = {rows, columns, north, south, west, east, column};
    const long long inner = columns - 2, points = (rows - 2) * inner;
    long long n = 0;
    while (n < limit) {
        if (blockIdx.x == 0) exchange(ctx, u, part);
        grid.sync();  // what has come is visible to all blocks
        double largest = 0.0;
        for (long long at = grid.thread_rank(); at < points; at += grid.num_threads()) {
            const long long i = (1 + at / inner) * columns + 1 + at % inner;
            v[i] = 0.25 * ((u[i - columns] + u[i + columns]) + (u[i - 1] + u[i + 1]));
            largest = fmax(largest, fabs(v[i] - u[i]));
        }
        double *other = u;
        u = v;
        v = other;
        if (++n % every == 0) {
            double *most = change + n / every;
            atomicMax((unsigned long long *)most, (unsigned long long)__double_as_longlong(largest));
            grid.sync();
            if (blockIdx.x == 0) {
                GMPI_Allreduce(ctx, GMPI_IN_PLACE, most, 1, GMPI_DOUBLE, GMPI_MAX, GMPI_COMM_WORLD);
            }
            grid.sync();
            if (*(volatile double *)most < tolerance) break;
        } else {
            grid.sync();  // what all blocks have computed is visible to block 0
        }
    }
    if (grid.thread_rank() == 0) steps[0] = n;
}
