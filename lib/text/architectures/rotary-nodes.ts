// rotary-nodes.ts: cosines and sines of the angles of each row, made once for all layers that share them.
import { int } from '../../graph/attributes.js'
import type { GraphBuilder } from '../../graph/builder.js'
import { Constant } from '../../graph/constant.js'
import type { Rotary } from './config.js'

/** Names of cosines and sines, both [tokens, rotated elements / 2]. */
export type RotaryAngles = readonly [cosines: string, sines: string]

/** Makes the angles of the rows whose positions are given. */
export class RotaryNodes {
  readonly #graph: GraphBuilder
  readonly #positions: string
  readonly #lengths: string | undefined
  readonly #made = new Map<string, RotaryAngles>()
  #column: string | undefined

  /**
   * @param positions - name of i32 [tokens]
   * @param lengths - name of i32 [tokens]: 1 in sequences of more tokens than `Rotary.shortLength`, else 0. Not needed where all
   * frequencies are one list
   */
  constructor(graph: GraphBuilder, positions: string, lengths?: string) {
    this.#graph = graph
    this.#positions = positions
    this.#lengths = lengths
  }

  /** Cosines and sines of the angles. */
  angles({ frequencies, factor }: Rotary): RotaryAngles {
    const key = JSON.stringify([frequencies, factor])
    const made = this.#made.get(key) ?? this.#make(frequencies, factor)
    this.#made.set(key, made)
    return made
  }

  #make(frequencies: Rotary['frequencies'], factor: number): RotaryAngles {
    const g = this.#graph
    const size = frequencies[0]!.length
    const table = g.constant(Constant.f32(frequencies.flat(), [frequencies.length, size]))
    const rows =
      this.#lengths && frequencies.length > 1
        ? g.add('Gather', [table, this.#lengths], { axis: int(0) })
        : table
    const angles = g.add('Mul', [this.#positionColumn(), rows])
    const scaled = (x: string): string => (factor === 1 ? x : g.add('Mul', [x, g.constant(factor)]))
    return [scaled(g.add('Cos', [angles])), scaled(g.add('Sin', [angles]))]
  }

  /** Positions as f32, [tokens, 1]. */
  #positionColumn(): string {
    const g = this.#graph
    this.#column ??= g.add('Cast', [g.add('Unsqueeze', [this.#positions, g.constant([1])])], { to: int(1) })
    return this.#column
  }
}
