// main-loop.js: the loop of a kernel that does its work, its loads and its tensor instructions.
import { blocksOf, busiestPath, loopsOf } from './control-flow.js'

/** @import { Block } from './control-flow.js' */
/** @import { Instruction } from './machine-code.js' */

/**
 * @typedef {object} MainLoop
 * @property {number} tensors tensor instructions of a warp
 * @property {number} loads of global memory, of a thread
 * @property {number} bytes that a thread loads
 * @property {number} waits for loads
 * @property {number} inFlight loads, at most, that are on their way when a thread waits for one of them
 * @property {boolean} isLoop otherwise all of a kernel without loops that load
 * @property {boolean} isNest with loops inside that load, whose turns are not known
 */

/** Turns of a loop after which all copies that its beginning has room for are on their way. */
const turns = 8

/** A path without loads of single bytes that predicates switch on, beside loads of words: they are of unaligned ends of rows. @param {readonly Instruction[]} path */
function withoutEnds(path) {
  if (!path.some(({ bytes }) => bytes >= 4)) return path
  return path.filter(({ kind, bytes, isConditional }) => kind !== 'load' || bytes >= 4 || !isConditional)
}

/** @param {readonly Instruction[]} path */
function totals(path) {
  let [tensors, loads, bytes] = [0, 0, 0]
  for (const instruction of path) {
    if (instruction.kind === 'tensor') tensors++
    if (instruction.bytes > 0) loads++
    bytes += instruction.bytes
  }
  return { tensors, loads, bytes }
}

/** Waits of the last of some turns of a path. @param {readonly Instruction[]} path @param {number} turns */
function waitsOf(path, turns) {
  /** @type {number[]} loads by their scoreboard */
  const pending = Array(8).fill(0)
  /** @type {number[]} copies of each group, the last one open */
  const groups = [0]
  let [waits, inFlight] = [0, 0]
  const sum = (/** @type {readonly number[]} */ counts) => counts.reduce((a, b) => a + b, 0)
  const wait = () => {
    waits++
    inFlight = Math.max(inFlight, sum(pending) + sum(groups))
  }
  for (let turn = 0; turn < turns; turn++) {
    ;[waits, inFlight] = [0, 0]
    for (const { kind, scoreboard, waits: mask, remaining } of path) {
      const awaited = pending.map((count, at) => ((mask >> at) & 1 ? count : 0))
      if (sum(awaited) > 0) {
        wait()
        for (const [at, count] of awaited.entries()) pending[at] -= count
      }
      if (kind === 'depbar' && sum(groups.slice(0, -1 - remaining)) > 0) wait()
      if (kind === 'depbar') groups.splice(0, Math.max(groups.length - 1 - remaining, 0))
      if (kind === 'load') pending[scoreboard]++
      if (kind === 'copy') groups[groups.length - 1]++
      if (kind === 'commit') groups.push(0)
    }
  }
  return { waits, inFlight }
}

/** Whether blocks load. @param {readonly Instruction[]} code @param {readonly Block[]} blocks @param {Iterable<number>} some */
function load(code, blocks, some) {
  return [...some].some(at => {
    const { first, end } = /** @type {Block} */ (blocks[at])
    return code.slice(first, end).some(({ bytes }) => bytes > 0)
  })
}

/** The loop that multiplies most, the first of equal ones; where none multiplies, the one that loads most. @param {readonly Instruction[]} code @returns {MainLoop} */
export function mainLoop(code) {
  const blocks = blocksOf(code)
  const { reached, loops } = loopsOf(blocks)
  const [best] = loops
    .map(loop => {
      const inside = reached.filter(block => loop.blocks.has(block))
      const path = withoutEnds(busiestPath(code, blocks, inside))
      const inner = loops.filter(({ header }) => header !== loop.header && loop.blocks.has(header))
      return {
        ...loop,
        path,
        ...totals(path),
        isNest: inner.some(({ blocks: own }) => load(code, blocks, own)),
      }
    })
    .filter(({ loads }) => loads > 0)
    .sort((a, b) => b.tensors - a.tensors || (a.tensors > 0 ? a.header - b.header : isBetter(a, b)))
  const path = best?.path ?? withoutEnds(busiestPath(code, blocks, reached))
  return {
    ...totals(path),
    ...waitsOf(path, best ? turns : 1),
    isLoop: best !== undefined,
    isNest: best?.isNest ?? false,
  }
}

/** Inner loops come before those around them. @param {{ isNest: boolean, bytes: number, path: readonly unknown[] }} a @param {{ isNest: boolean, bytes: number, path: readonly unknown[] }} b */
const isBetter = (a, b) =>
  Number(a.isNest) - Number(b.isNest) || b.bytes - a.bytes || a.path.length - b.path.length
