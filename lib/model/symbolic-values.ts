// symbolic-values.ts: the values that a segment begins with, as compilation sees them: their sizes, and the elements that
// decide about sizes, are symbols.

import type { Size } from '../core/size.js'
import { maxSymbol, SizeScope, type SizeValues } from '../core/size-scope.js'
import { Constant, type NumericType } from '../graph/constant.js'
import type { Fact } from '../graph/shape-inference.js'
import type { StateOptions } from '../plan/growing-state.js'
import { ModelState } from './model-state.js'
import { type HostTensor, type HostValue, numbersOf, typeOf } from './values.js'

/** Elements of a list that become symbols; longer ones are constants. */
const maxSymbols = 64

/** What a value has to be, so that what was compiled holds for it. */
type Expectation = (value: HostValue) => boolean

/** Values with symbols, and what other values must have in common with them. */
export class SymbolicValues {
  /** Types and elements, by name. */
  readonly facts = new Map<string, Fact>()
  /** Values that a run replaces, by name. */
  readonly states = new Map<string, StateOptions>()
  /** Values that are the same in all runs, by name. */
  readonly constants = new Map<string, Constant>()
  readonly #scope = new SizeScope()
  readonly #expectations = new Map<string, Expectation[]>()
  /** Where the values of the symbols are, in their order. */
  readonly #sources: ((values: ReadonlyMap<string, HostValue>) => number)[] = []

  /**
   * @param values - an example
   * @param pins - names of those whose elements matter
   * @param isFixed - whether a size is the same in all runs, as far as the file says so
   */
  constructor(
    values: ReadonlyMap<string, HostValue>,
    pins: ReadonlySet<string>,
    isFixed: (name: string, axis: number, size: number) => boolean,
  ) {
    for (const [name, value] of values) {
      this.#expectations.set(name, [isLike(value)])
      if (value.kind !== 'tensor') {
        this.facts.set(name, { type: typeOf(value) })
        continue
      }
      if (value instanceof ModelState) this.#addState(name, value)
      const { dtype } = value
      const pinned = pins.has(name)
      const growing = value instanceof ModelState ? value.pair.axis : undefined
      const shape = pinned
        ? this.#fixed(name, value)
        : value.shape.map((size, axis) =>
            this.#size(name, axis, size, isFixed(name, axis, size), growing === axis),
          )
      const type = { kind: 'tensor', dtype, shape } as const
      const elements = pinned ? this.#elements(name, value) : undefined
      this.facts.set(name, { type, known: elements && { shape: value.shape, elements } })
    }
  }

  /**
   * What the sizes are for other values; undefined where what was compiled does not hold for them.
   * @param values - of the same names
   */
  match(values: ReadonlyMap<string, HostValue>): SizeValues | undefined {
    for (const [name, expectations] of this.#expectations) {
      const value = values.get(name)!
      if (!expectations.every(fits => fits(value))) return undefined
    }
    return this.#scope.evaluate(this.#sources.map(read => read(values)))
  }

  /** Whether something is a symbol. */
  get isOpen(): boolean {
    return this.#scope.symbols > 0
  }

  /** What holds for the sizes besides, as formulas. */
  get guards(): readonly string[] {
    return this.#scope.guards
  }

  /** A size as a symbol; 0 and 1, which broadcast, and sizes that never change are numbers. */
  #size(name: string, axis: number, size: number, isFixed: boolean, isGrowing: boolean): Size {
    const read = (value: HostValue | undefined): number => (value as HostTensor).shape[axis]!
    if (isGrowing) return this.#symbol(`${name}.${axis}`, size, values => read(values.get(name)), 0)
    if (isFixed || size < 2 || size > maxSymbol) return this.#number(name, size, read)
    return this.#symbol(`${name}.${axis}`, size, values => read(values.get(name)))
  }

  #addState(name: string, { pair, capacity }: ModelState): void {
    const { axis } = pair
    const isSame = (other: HostValue): boolean =>
      other instanceof ModelState && other.pair.output === pair.output && other.pair.axis === axis
    this.#expectations.get(name)!.push(isSame)
    const read = (values: ReadonlyMap<string, HostValue>): number => (values.get(name) as ModelState).capacity
    const size = axis === undefined ? 1 : this.#symbol(`capacity of ${name}`, capacity, read)
    this.states.set(name, { axis, capacity: size })
  }

  #fixed(name: string, { shape }: HostTensor): readonly number[] {
    for (const [axis, size] of shape.entries())
      this.#number(name, size, value => (value as HostTensor).shape[axis]!)
    return shape
  }

  /** The elements of a value as sizes; undefined where it became a constant. */
  #elements(name: string, value: HostTensor): readonly Size[] | undefined {
    if ((value.dtype !== 'i64' && value.dtype !== 'i32') || value.data.length > maxSymbols) {
      const data = value.data.slice() as Float32Array
      const isSame = (other: HostValue): boolean =>
        data.every((element, i) => Object.is(element, (other as HostTensor).data[i]))
      this.#expectations.get(name)!.push(isSame)
      this.constants.set(name, Constant.from(value.dtype as NumericType, value.shape, data))
      return undefined
    }
    return numbersOf(value).map((element, i) => {
      const read = (other: HostValue | undefined): number => Number((other as HostTensor).data[i])
      if (element < 2 || element > maxSymbol) return this.#number(name, element, read)
      return this.#symbol(`${name}[${i}]`, element, values => read(values.get(name)))
    })
  }

  #number(name: string, number: number, read: (value: HostValue) => number): number {
    this.#expectations.get(name)!.push(value => read(value) === number)
    return number
  }

  #symbol(
    label: string,
    hint: number,
    read: (values: ReadonlyMap<string, HostValue>) => number,
    low?: number,
  ): Size {
    this.#sources.push(read)
    return this.#scope.symbol(label, hint, low)
  }
}

/** What values have in common with this one, whatever their sizes. */
function isLike(value: HostValue): Expectation {
  if (value.kind !== 'tensor') return ({ kind }) => kind === value.kind
  const { dtype, shape } = value
  const isState = value instanceof ModelState
  return other =>
    other.kind === 'tensor' &&
    other.dtype === dtype &&
    other.shape.length === shape.length &&
    other instanceof ModelState === isState
}
