// control-flow.js: basic blocks, loops, and the path through them that most work takes.

/** @import { Instruction } from './machine-code.js' */

/** @typedef {{ first: number, end: number, next: number[] }} Block `next`: blocks that follow */

/** @typedef {{ header: number, blocks: Set<number> }} Loop */

/** @param {readonly Instruction[]} code @returns {Block[]} */
export function blocksOf(code) {
  const firsts = new Set([0])
  for (const [i, { kind, target }] of code.entries()) {
    if (kind === 'branch') firsts.add(target)
    if (kind === 'branch' || kind === 'exit') firsts.add(i + 1)
  }
  const starts = [...firsts].filter(at => at < code.length).sort((a, b) => a - b)
  const index = new Map(starts.map((at, i) => [at, i]))
  return starts.map((first, i) => {
    const end = starts[i + 1] ?? code.length
    const { kind, target, isConditional } = /** @type {Instruction} */ (code[end - 1])
    const falls = !(kind === 'branch' || kind === 'exit') || isConditional
    const following = [...(kind === 'branch' ? [target] : []), ...(falls ? [end] : [])]
    return { first, end, next: following.flatMap(at => index.get(at) ?? []) }
  })
}

/** Blocks that can be reached, each before those that follow but for the beginnings of loops. @param {readonly Block[]} blocks */
function order(blocks) {
  /** @type {number[]} */
  const found = []
  const seen = new Set([0])
  const stack = [{ block: 0, at: 0 }]
  for (let top = stack.at(-1); top; top = stack.at(-1)) {
    const next = /** @type {Block} */ (blocks[top.block]).next[top.at++]
    if (next === undefined) {
      found.unshift(top.block)
      stack.pop()
    } else if (!seen.has(next)) {
      seen.add(next)
      stack.push({ block: next, at: 0 })
    }
  }
  return found
}

/** @param {readonly Block[]} blocks @param {readonly number[]} reached */
function predecessors(blocks, reached) {
  /** @type {Map<number, number[]>} */
  const before = new Map(reached.map(block => [block, []]))
  for (const block of reached)
    for (const next of /** @type {Block} */ (blocks[block]).next) before.get(next)?.push(block)
  return before
}

/** Whether every way to block b goes through a, by immediate dominators. @param {readonly number[]} reached @param {Map<number, number[]>} before */
function dominance(reached, before) {
  const rank = new Map(reached.map((block, i) => [block, i]))
  /** @type {number[]} of ranks */
  const dominator = [0]
  const common = (/** @type {number} */ a, /** @type {number} */ b) => {
    while (a !== b) {
      if (a > b) a = /** @type {number} */ (dominator[a])
      else b = /** @type {number} */ (dominator[b])
    }
    return a
  }
  for (let changed = true; changed; ) {
    changed = false
    for (const [i, block] of reached.entries()) {
      if (i === 0) continue
      const ways = (before.get(block) ?? []).map(way => Number(rank.get(way)))
      const now = ways.filter(way => dominator[way] !== undefined).reduce(common)
      changed ||= now !== dominator[i]
      dominator[i] = now
    }
  }
  return (/** @type {number} */ a, /** @type {number} */ b) => {
    const [high, low] = [Number(rank.get(a)), Number(rank.get(b))]
    return common(high, low) === high
  }
}

/** Natural loops, and the blocks that are reached, in order. @param {readonly Block[]} blocks */
export function loopsOf(blocks) {
  const reached = order(blocks)
  const before = predecessors(blocks, reached)
  const dominates = dominance(reached, before)
  /** @type {Map<number, Loop>} */
  const loops = new Map()
  for (const block of reached)
    for (const header of /** @type {Block} */ (blocks[block]).next) {
      if (!dominates(header, block)) continue
      const loop = loops.get(header) ?? { header, blocks: new Set([header]) }
      loops.set(header, loop)
      const open = [block]
      for (let at = open.pop(); at !== undefined; at = open.pop()) {
        if (loop.blocks.has(at)) continue
        loop.blocks.add(at)
        open.push(...(before.get(at) ?? []))
      }
    }
  return { reached, loops: [...loops.values()] }
}

/**
 * The way through some blocks, once through each loop inside, on which most happens: most tensor instructions, then most bytes
 * in copies, then in loads of words, then in all loads, then fewest instructions. It ends where a block leads back to the first,
 * or nowhere.
 * @param {readonly Instruction[]} code @param {readonly Block[]} blocks @param {readonly number[]} inside in order
 */
export function busiestPath(code, blocks, inside) {
  const header = /** @type {number} */ (inside[0])
  const rank = new Map(inside.map((block, i) => [block, i]))
  /** @type {Map<number, { worth: number[], from: number | undefined }>} */
  const best = new Map([[header, { worth: worthOf(code, blocks[header]), from: undefined }]])
  let last = { block: header, worth: /** @type {number[]} */ ([-1]) }
  for (const block of inside) {
    const here = best.get(block)
    if (!here) continue
    const { next } = /** @type {Block} */ (blocks[block])
    const forward = next.filter(to => Number(rank.get(to)) > Number(rank.get(block)))
    const ends = next.includes(header) || next.length === 0
    if (ends && isMore(here.worth, last.worth)) last = { block, worth: here.worth }
    for (const to of forward) {
      const worth = worthOf(code, blocks[to]).map((value, i) => value + Number(here.worth[i]))
      const known = best.get(to)
      if (!known || isMore(worth, known.worth)) best.set(to, { worth, from: block })
    }
  }
  /** @type {Instruction[]} */
  const path = []
  for (let at = /** @type {number | undefined} */ (last.block); at !== undefined; at = best.get(at)?.from) {
    const { first, end } = /** @type {Block} */ (blocks[at])
    path.unshift(...code.slice(first, end))
  }
  return path
}

/** @param {readonly Instruction[]} code @param {Block | undefined} block */
function worthOf(code, block) {
  const { first, end } = /** @type {Block} */ (block)
  let [tensors, copies, words, all] = [0, 0, 0, 0]
  for (const { kind, bytes } of code.slice(first, end)) {
    if (kind === 'tensor') tensors++
    if (kind === 'copy') copies += bytes
    if (bytes >= 4) words += bytes
    all += bytes
  }
  return [tensors, copies, words, all, first - end]
}

/** @param {readonly number[]} a @param {readonly number[]} b */
function isMore(a, b) {
  const at = a.findIndex((value, i) => value !== b[i])
  return at >= 0 && Number(a[at]) > Number(b[at] ?? Number.NEGATIVE_INFINITY)
}
