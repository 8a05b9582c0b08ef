// size-scope.ts: expressions of sizes, the symbols that they are made of, the guards that their use left behind, and their
// values.

/** A size of a tensor, a stride, an offset or a count: a number, or an expression of symbols. */
export type Size = number | SizeExpression

/**
 * A polynomial with integer coefficients. Expressions of one scope are equal when they are the same object. Made by
 * `SizeScope.symbol` and the functions of size.ts.
 */
export class SizeExpression {
  /**
   * Where its symbols come from.
   * @internal
   */
  readonly scope: SizeScope
  /**
   * Its number among the expressions of the scope.
   * @internal
   */
  readonly id: number
  /**
   * Its terms in a fixed order, none with the coefficient 0.
   * @internal
   */
  readonly terms: readonly Term[]
  /** Its value for the example sizes. Decisions on it need a guard: see `sameSize` and its like. */
  readonly hint: number

  /** @internal */
  constructor(scope: SizeScope, id: number, terms: readonly Term[]) {
    this.scope = scope
    this.id = id
    this.terms = terms
    this.hint = terms.reduce((sum, term) => sum + termValue(term, atom => atom.hint), 0)
  }

  /** As a formula, such as `2·x.1 + 1`. */
  get formula(): string {
    return this.terms
      .map(({ coefficient, atoms }) => {
        const names = atoms.map(({ name }) => name)
        return [...(coefficient === 1 && names.length > 0 ? [] : [coefficient]), ...names].join('·')
      })
      .join(' + ')
  }

  /** The example size, for messages. */
  toString(): string {
    return String(this.hint)
  }

  /** @throws TypeError for arithmetic with operators, which would lose the symbols */
  [Symbol.toPrimitive](kind: string): string {
    if (kind === 'string') return this.toString()
    throw new TypeError(`the size ${this.formula} is no number: use the functions of core/size.ts`)
  }
}

/** The value of a term for given values of its atoms. */
function termValue({ coefficient, atoms }: Term, value: (atom: Atom) => number): number {
  return atoms.reduce((product, atom) => product * value(atom), coefficient)
}

import { SparkError } from './errors.js'

/** The least and the greatest value that a size can have. */
export type Interval = readonly [low: number, high: number]

/** What terms multiply: a symbol, or a function of sizes. */
export interface Atom {
  /** Its number in its scope; those of its arguments are smaller. */
  readonly id: number
  readonly name: string
  /** Its value for the example sizes. */
  readonly hint: number
  readonly bounds: Interval
  /** Whether its values are integers. */
  readonly isInteger: boolean
  /** Its value; `symbols` are those of the scope in their order. */
  readonly evaluate: (symbols: readonly number[], values: SizeValues) => number
}

/** A coefficient times atoms, in the order of their numbers. */
export interface Term {
  readonly coefficient: number
  readonly atoms: readonly Atom[]
}

/** A question about a size that was answered by its example. */
type Question = 'zero' | 'negative'

/** An answer that has to be the same for other sizes. */
interface Guard {
  readonly size: SizeExpression
  readonly question: Question
  readonly answer: boolean
}

const answers: Readonly<Record<Question, (value: number) => boolean>> = {
  zero: value => value === 0,
  negative: value => value < 0,
}

/** The greatest value of a symbol: larger numbers mean "to the end" in many files. */
export const maxSymbol = 2 ** 31 - 1

/** Symbols, and everything that is computed with them. */
export class SizeScope {
  readonly #symbols: Atom[] = []
  readonly #atoms = new Map<string, Atom>()
  readonly #expressions = new Map<string, SizeExpression>()
  readonly #guards = new Map<string, Guard>()

  /**
   * A new symbol.
   * @param name - for messages
   * @param hint - its example
   * @param low - the least value that it may take, up to {@link maxSymbol}; sizes of 0 and 1 behave in a way of their own and are numbers
   */
  symbol(name: string, hint: number, low = 2): SizeExpression {
    const at = this.#symbols.length
    const atom = this.#atom(name, {
      hint,
      bounds: [low, maxSymbol],
      isInteger: true,
      evaluate: symbols => symbols[at]!,
    })
    this.#symbols.push(atom)
    return this.expression([{ coefficient: 1, atoms: [atom] }]) as SizeExpression
  }

  /** How many symbols there are. */
  get symbols(): number {
    return this.#symbols.length
  }

  /** How many expressions there are. */
  get expressions(): number {
    return this.#expressions.size
  }

  /** The guards as formulas. */
  get guards(): readonly string[] {
    return Array.from(this.#guards.values(), ({ size, question, answer }) => {
      const relation = { zero: answer ? '= 0' : '≠ 0', negative: answer ? '< 0' : '≥ 0' }[question]
      return `${size.formula} ${relation}`
    })
  }

  /** The values of all expressions for these symbols; undefined when a guard does not hold for them. */
  evaluate(symbols: readonly number[]): SizeValues | undefined {
    if (!this.#symbols.every(({ bounds: [low, high] }, i) => symbols[i]! >= low && symbols[i]! <= high))
      return undefined
    const values = new ScopeValues(this, symbols)
    for (const { size, question, answer } of this.#guards.values())
      if (answers[question](values.of(size)) !== answer) return undefined
    return values
  }

  /** The expression of a sum of terms, a number where no atoms are left. */
  expression(terms: readonly Term[]): Size {
    const sums = new Map<string, Term>()
    for (const { coefficient, atoms } of terms) {
      const sorted = atoms.length > 1 ? [...atoms].sort((a, b) => a.id - b.id) : atoms
      const key = sorted.map(({ id }) => id).join('·')
      const sum = coefficient + (sums.get(key)?.coefficient ?? 0)
      if (sum === 0) sums.delete(key)
      else sums.set(key, { coefficient: sum, atoms: sorted })
    }
    if (sums.size === 0) return 0
    const constant = sums.get('')
    if (constant && sums.size === 1) return constant.coefficient
    const ordered = [...sums].sort(([, a], [, b]) => compareAtoms(a.atoms, b.atoms))
    const key = ordered.map(([atoms, { coefficient }]) => `${coefficient}·${atoms}`).join('+')
    const known = this.#expressions.get(key)
    if (known) return known
    const made = new SizeExpression(
      this,
      this.#expressions.size,
      ordered.map(([, term]) => term),
    )
    this.#expressions.set(key, made)
    return made
  }

  /** A function of sizes, one of which is no number. */
  apply(
    name: string,
    compute: (...sizes: number[]) => number,
    sizes: readonly Size[],
    isInteger: boolean,
  ): Size {
    const label = `${name}(${sizes.map(size => (typeof size === 'number' ? size : size.formula)).join(', ')})`
    const atom =
      this.#atoms.get(label) ??
      this.#atom(label, {
        hint: compute(...sizes.map(size => (typeof size === 'number' ? size : size.hint))),
        bounds: isInteger ? boundsOfResult(name, sizes) : everything,
        isInteger,
        evaluate: (_, values) => compute(...sizes.map(size => values.of(size))),
      })
    return this.expression([{ coefficient: 1, atoms: [atom] }])
  }

  /** Answers a question about a size by its example, and keeps the answer. */
  decide(size: SizeExpression, question: Question): boolean {
    const asked = this.#reduced(size)
    const answer = answers[question](asked.hint)
    this.#guards.set(`${question} ${asked.id}`, { size: asked, question, answer })
    return answer
  }

  /** A size without positive factors, which decide nothing about its sign. */
  #reduced(size: SizeExpression): SizeExpression {
    const coefficients = size.terms.map(({ coefficient }) => Math.abs(coefficient))
    const divisor = coefficients.every(Number.isInteger) ? coefficients.reduce(gcd, 0) : 1
    const shared = size.terms[0]!.atoms.filter(
      (atom, i, all) =>
        atom.bounds[0] > 0 &&
        all.indexOf(atom) === i &&
        size.terms.every(({ atoms }) => atoms.includes(atom)),
    )
    if (divisor <= 1 && shared.length === 0) return size
    const terms = size.terms.map(({ coefficient, atoms }) => ({
      coefficient: coefficient / divisor,
      atoms: shared.reduce<readonly Atom[]>((left, atom) => left.toSpliced(left.indexOf(atom), 1), atoms),
    }))
    return this.expression(terms) as SizeExpression
  }

  #atom(name: string, atom: Omit<Atom, 'id' | 'name'>): Atom {
    const made = { id: this.#atoms.size, name, ...atom }
    this.#atoms.set(name, made)
    return made
  }
}

/** What sizes are in one run. */
export interface SizeValues {
  /** The value of a size. */
  of(size: Size): number
  /** The same for all values of one scope that are equal. */
  readonly key: string
}

/** What sizes are where all of them are numbers. */
export const fixedSizes: SizeValues = {
  key: '',
  of(size) {
    if (typeof size === 'number') return size
    throw new SparkError('ERR_INTERNAL', `the size ${size.formula} has no value here`)
  },
}

/** The values of the expressions of a scope. */
class ScopeValues implements SizeValues {
  readonly #symbols: readonly number[]
  readonly #atoms: (number | undefined)[] = []
  readonly #values: (number | undefined)[]

  /** @internal */
  constructor(scope: SizeScope, symbols: readonly number[]) {
    this.#symbols = symbols
    this.#values = new Array(scope.expressions)
  }

  get key(): string {
    return this.#symbols.join()
  }

  of(size: Size): number {
    if (typeof size === 'number') return size
    const known = this.#values[size.id]
    if (known !== undefined) return known
    let value = 0
    for (const term of size.terms) value += termValue(term, this.#valueOf)
    this.#values[size.id] = value
    return value
  }

  readonly #valueOf = (atom: Atom): number => {
    const known = this.#atoms[atom.id]
    if (known !== undefined) return known
    const value = atom.evaluate(this.#symbols, this)
    this.#atoms[atom.id] = value
    return value
  }
}

const everything: Interval = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]

/** What a size lies between, as far as that follows from its terms one by one. */
export function boundsOf(size: Size): Interval {
  if (typeof size === 'number') return [size, size]
  let [low, high] = [0, 0]
  for (const { coefficient, atoms } of size.terms) {
    const [least, most] = atoms.reduce<Interval>(
      (product, { bounds }) => times(product, bounds),
      [coefficient, coefficient],
    )
    low += least
    high += most
  }
  return [low, high]
}

function times([a, b]: Interval, [c, d]: Interval): Interval {
  const ends = [a * c, a * d, b * c, b * d].map(end => (Number.isNaN(end) ? 0 : end))
  return [Math.min(...ends), Math.max(...ends)]
}

function boundsOfResult(name: string, sizes: readonly Size[]): Interval {
  const bounds = sizes.map(boundsOf)
  const [a, b] = bounds
  if (!a || !b) return everything
  switch (name) {
    case 'floorDivide':
      return b[0] === b[1] && b[0] > 0
        ? [Math.floor(a[0] / b[0]), Math.floor(a[1] / b[0])]
        : a[0] >= 0
          ? [0, a[1]]
          : everything
    case 'minimum':
      return [Math.min(a[0], b[0]), Math.min(a[1], b[1])]
    case 'maximum':
      return [Math.max(a[0], b[0]), Math.max(a[1], b[1])]
    default:
      return everything
  }
}

/** Terms of more atoms first, then by the numbers of their atoms. */
function compareAtoms(a: readonly Atom[], b: readonly Atom[]): number {
  if (a.length !== b.length) return b.length - a.length
  const at = a.findIndex((atom, i) => atom.id !== b[i]!.id)
  return at < 0 ? 0 : a[at]!.id - b[at]!.id
}

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b))
