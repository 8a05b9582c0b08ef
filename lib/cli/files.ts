// files.ts: files that commands write: their sizes, and inputs that must stay.
import { stat } from 'node:fs/promises'
import path from 'node:path'
import type { Graph } from '../graph/graph.js'
import { UsageError } from './command.js'
import { formatBytes } from './output.js'

/**
 * Throws when a command would write over its own input, through a link, too.
 * @throws UsageError
 */
export async function expectOther(input: string, output: string, overwrite = false): Promise<void> {
  if (overwrite) return
  const [from, to] = await Promise.all(
    [input, output].map(file => stat(file, { bigint: true }).catch(() => undefined)),
  )
  const same =
    from && to ? from.ino === to.ino && from.dev === to.dev : path.resolve(input) === path.resolve(output)
  if (same) throw new UsageError(`--output ${output} is the model itself: give another name, or --overwrite`)
}

/** Bytes of all weights and constants of a graph as a file stores them. */
export const weightBytes = ({ initializers }: Graph): number =>
  [...initializers.values()].reduce((sum, { byteLength }) => sum + byteLength, 0)

/** Two sizes and their ratio: `1.5 MiB -> 0.4 MiB (27 %)`. */
export function describeChange(before: number, after: number): string {
  const share = before > 0 ? ` (${((100 * after) / before).toFixed(0)} %)` : ''
  return `${formatBytes(before)} -> ${formatBytes(after)}${share}`
}

/** Bytes of what was written: an ONNX file and its `.data` file, or the files of a folder. */
export async function writtenBytes(files: readonly string[]): Promise<number> {
  const sizes = await Promise.all(
    files.map(async file => (await stat(file).catch(() => undefined))?.size ?? 0),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}
