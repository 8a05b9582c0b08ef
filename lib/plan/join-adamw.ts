// join-adamw.ts: AdamW steps with the same settings become steps of many tensors, each of which a GPU takes in two launches.

import type { Paced } from '../core/paced.js'
import { sameSize } from '../core/size.js'
import { maxAdamwTensors } from '../kernels/network-args.js'
import { type Buffer, Operand, operandsOf, type Step } from './program.js'

type AdamwStep = Extract<Step, { op: 'adamw' }>

/** Joins AdamW steps: one waits for others until something depends on it. */
export function* joinAdamw(steps: readonly Step[]): Paced<Step[]> {
  const joined: Step[] = []
  let group = new Group()
  for (const step of steps) {
    yield
    if (group.dependsOn(step) || (step.op === 'adamw' && !group.fits(step))) {
      joined.push(...group.joined())
      group = new Group()
    }
    if (step.op === 'adamw') group.add(step)
    else joined.push(step)
  }
  return [...joined, ...group.joined()]
}

/** Steps that become one, and what they use. */
class Group {
  #first: AdamwStep | undefined
  readonly #tensors: AdamwStep['args']['tensors'][number][] = []
  readonly #reads = new Set<Buffer>()
  readonly #updates = new Set<Buffer>()

  add(step: AdamwStep): void {
    this.#first ??= step
    this.#tensors.push(...step.args.tensors)
    for (const { buffer, access } of operandsOf(step.args))
      (access === 'read' ? this.#reads : this.#updates).add(buffer)
  }

  /** Whether the order of the group and a step matters. */
  dependsOn(step: Step): boolean {
    for (const { buffer, access } of operandsOf(step.args))
      if (this.#updates.has(buffer) || (access !== 'read' && this.#reads.has(buffer))) return true
    return false
  }

  /** Whether there is space for the tensors of a step, which has the settings of the group. */
  fits({ args }: AdamwStep): boolean {
    const first = this.#first?.args
    if (!first) return true
    const { tensors, ...settings } = args
    const names = Object.keys(settings) as (keyof typeof settings)[]
    const isSpace = this.#tensors.length + tensors.length <= maxAdamwTensors
    return isSpace && names.every(name => isSameSetting(settings[name], first[name]))
  }

  /** The step of all, or none of none. */
  joined(): Step[] {
    const first = this.#first
    return first ? [{ ...first, args: { ...first.args, tensors: this.#tensors } }] : []
  }
}

function isSameSetting(a: unknown, b: unknown): boolean {
  if (!(a instanceof Operand && b instanceof Operand)) return a === b
  return a.buffer === b.buffer && sameSize(a.offset, b.offset)
}
