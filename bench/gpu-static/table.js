// table.js: figures of kernels as text.

/** @import { Figures } from './figures.js' */

/** Threads of a warp. */
const lanes = 32

const head = [
  ...['kernel', 'registers', 'local', 'shared', 'threads', 'blocks', 'warps'],
  ...['loads', 'bytes', 'waits', 'in flight', 'tensor', 'tensor/KiB'],
]

/** Tensor instructions of a warp for each KiB that it loads; undefined where loops inside load an unknown number of times. @param {Figures} figures */
export const tensorsOfKiB = ({ tensors, bytes, isNest }) =>
  tensors === 0 || bytes === 0 || isNest ? undefined : (1024 * tensors) / (bytes * lanes)

/** @param {Figures} figures */
function cells(figures) {
  const { name, registers, local, shared, threads, blocks, warps, loads, bytes, waits, inFlight, tensors } =
    figures
  const ratio = tensorsOfKiB(figures)?.toFixed(1) ?? '-'
  const loop = figures.isLoop
    ? [loads, bytes, waits, inFlight]
    : [loads, bytes, waits, inFlight].map(count => `${count}*`)
  return [name, registers, local, shared, threads, blocks, warps, ...loop, tensors, ratio].map(String)
}

/** Lines of cells, the first of each to the left, the others to the right. @param {readonly (readonly string[])[]} lines */
export function alignedColumns(lines) {
  const widths = lines[0]?.map((_, i) => Math.max(...lines.map(line => `${line[i]}`.length))) ?? []
  return lines
    .map(line =>
      line
        .map((cell, i) => (i === 0 ? cell.padEnd(Number(widths[i])) : cell.padStart(Number(widths[i]))))
        .join('  '),
    )
    .join('\n')
}

/** A line a kernel. @param {readonly Figures[]} figures */
export const figuresTable = figures => alignedColumns([head, ...figures.map(cells)])
