// table.ts: types of the tables of lowerings.
import type { Lowering } from '../lowering.js'

/** Turns a node into kernel calls, or into none where its output is a view or known. */
export type Lower = (ctx: Lowering) => void

/** Lowerings by domain and operator. */
export type LowerTable = Readonly<Record<string, Readonly<Record<string, Lower>>>>
