// automaton.ts: a regular expression as states, all of which are followed through a text at once (Thompson 1968). A text of
// n characters costs at most n steps of each state, whatever the pattern.
import { type CharacterTest, PatternError } from './characters.js'
import type { Part, PositionTest } from './parse.js'

type State =
  | { readonly type: 'character'; readonly test: CharacterTest; readonly next: number }
  /** `next` in the order in which they are tried. */
  | { readonly type: 'jump'; readonly next: number[]; readonly group?: number }
  | { readonly type: 'assertion'; readonly holds: PositionTest; readonly next: number }
  /** Holds where the automaton of number `view` can, or cannot, begin `back` characters before. */
  | {
      readonly type: 'look'
      readonly view: number
      readonly back: number
      readonly negated: boolean
      readonly next: number
    }
  | { readonly type: 'end' }

/** Bounds what counted repetitions make of a pattern. */
export interface Budget {
  left: number
}

/** Told of each assertion in the text, from the last to the first, and of the states from which the end can be reached there. */
type Visitor = (at: number, alive: readonly number[]) => void

/** The set of texts that a part of a regular expression matches. */
export class Automaton {
  readonly #states: State[] = [{ type: 'end' }]
  readonly #start: number
  /** By state: the states from which it is one character away, and those from which it is none. */
  readonly #steps: number[][]
  readonly #jumps: number[][]
  readonly #looks: Automaton[] = []
  /** By state: the last round in which it was found alive. */
  readonly #seen: Float64Array
  #round = 0

  /** @throws PatternError when the budget is spent */
  constructor(part: Part, budget: Budget) {
    this.#start = this.#add(part, 0, budget)
    this.#steps = this.#states.map(() => [])
    this.#jumps = this.#states.map(() => [])
    this.#states.forEach((state, from) => {
      if (state.type === 'end') return
      const into = state.type === 'character' ? this.#steps : this.#jumps
      for (const next of [state.next].flat()) into[next]!.push(from)
    })
    this.#seen = new Float64Array(this.#states.length)
  }

  /** Whether the whole text matches. */
  matches(text: readonly string[]): boolean {
    let found = false
    this.#follow(text, false, at => {
      found = at === 0 && this.#seen[this.#start] === this.#round
    })
    return found
  }

  /** The assertions from which some part of the text matches. */
  #starts(text: readonly string[]): Uint8Array {
    const starts = new Uint8Array(text.length + 1)
    this.#follow(text, true, at => {
      starts[at] = Number(this.#seen[this.#start] === this.#round)
    })
    return starts
  }

  /** Where a group begins and ends in a text that matches as a whole, by the choices of a backtracking matcher. */
  group(text: readonly string[], number: number): readonly [from: number, to: number] | undefined {
    const alive: ReadonlySet<number>[] = []
    this.#follow(text, false, (at, states) => {
      alive[at] = new Set(states)
    })
    const seen = new Set<number>()
    let paths = [{ state: this.#start, ends: [] as number[] }]
    for (let at = 0; paths.length > 0; ) {
      const { state, ends } = paths.pop()!
      if (seen.has(state) || !alive[at]?.has(state)) continue
      seen.add(state)
      const found = this.#states[state]!
      if (found.type === 'end') return ends.length < 2 ? undefined : [ends.at(-2)!, ends.at(-1)!]
      if (found.type === 'jump') {
        const met = found.group === number ? [...ends, at] : ends
        for (const next of [...found.next].reverse()) paths.push({ state: next, ends: met })
      } else {
        if (found.type === 'character') {
          // What is alive leads to the end, so no other path is needed any more.
          paths = []
          seen.clear()
          at++
        }
        paths.push({ state: found.next, ends })
      }
    }
    return undefined
  }

  /** Finds, from the last assertion of the text to the first, the states from which its end, or any assertion, can be reached. */
  #follow(text: readonly string[], endsAnywhere: boolean, visit: Visitor): void {
    const views = this.#looks.map(look => look.#starts(text))
    let alive: readonly number[] = []
    for (let at = text.length; at >= 0; at--) {
      this.#round++
      const here: number[] = []
      if (endsAnywhere || at === text.length) this.#enter(0, here)
      for (const next of alive) {
        for (const from of this.#steps[next]!) {
          const state = this.#states[from]!
          if (state.type === 'character' && state.test(text[at]!)) this.#enter(from, here)
        }
      }
      for (let i = 0; i < here.length; i++) {
        for (const from of this.#jumps[here[i]!]!) {
          if (this.#passes(from, text, at, views)) this.#enter(from, here)
        }
      }
      visit(at, here)
      if (here.length === 0 && !endsAnywhere) return
      alive = here
    }
  }

  #enter(state: number, here: number[]): void {
    if (this.#seen[state] === this.#round) return
    this.#seen[state] = this.#round
    here.push(state)
  }

  #passes(from: number, text: readonly string[], at: number, views: readonly Uint8Array[]): boolean {
    const state = this.#states[from]!
    if (state.type === 'assertion') return state.holds(text, at)
    if (state.type !== 'look') return true
    return (views[state.view]![at - state.back] === 1) !== state.negated
  }

  /** Adds the states of a part, behind which the automaton goes on with `next`; returns the first of them. */
  #add(part: Part, next: number, budget: Budget): number {
    if (--budget.left < 0) throw new PatternError('repetitions that make it too large')
    switch (part.type) {
      case 'character':
      case 'assertion':
        return this.#push({ ...part, next })
      case 'look': {
        const view = this.#looks.push(new Automaton(part.part, budget)) - 1
        const { back, negated } = part
        return this.#push({ type: 'look', view, back, negated, next })
      }
      case 'group': {
        const end = this.#push({ type: 'jump', next: [next], group: part.number })
        return this.#push({ type: 'jump', next: [this.#add(part.part, end, budget)], group: part.number })
      }
      case 'sequence':
        return part.parts.reduceRight((after, inner) => this.#add(inner, after, budget), next)
      case 'choice':
        return this.#push({ type: 'jump', next: part.parts.map(inner => this.#add(inner, next, budget)) })
      case 'repeat':
        return this.#addRepeat(part, next, budget)
    }
  }

  #addRepeat({ part, min, max, lazy }: Part & { type: 'repeat' }, next: number, budget: Budget): number {
    const order = (again: number): number[] => (lazy ? [next, again] : [again, next])
    let first = next
    if (max === Number.POSITIVE_INFINITY) {
      const loop: number[] = []
      first = this.#push({ type: 'jump', next: loop })
      loop.push(...order(this.#add(part, first, budget)))
    } else {
      for (let i = min; i < max; i++) {
        first = this.#push({ type: 'jump', next: order(this.#add(part, first, budget)) })
      }
    }
    for (let i = 0; i < min; i++) first = this.#add(part, first, budget)
    return first
  }

  #push(state: State): number {
    return this.#states.push(state) - 1
  }
}
