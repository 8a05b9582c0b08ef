// families.ts: tables of operators by family, and the lookup of an operator in them.
import type { Node } from './graph.js'

/** Entries by the stem of a family's file, domain and operator. */
export type Families<Entry> = Readonly<
  Record<string, Readonly<Record<string, Readonly<Record<string, Entry>>>>>
>

/** The entry of the operator of a node; undefined for an operator in no family. */
export function entryOf<Entry>(families: Families<Entry>, { domain, op }: Node): Entry | undefined {
  for (const family of Object.values(families)) {
    const entries = Object.hasOwn(family, domain) ? family[domain] : undefined
    if (entries && Object.hasOwn(entries, op)) return entries[op]
  }
  return undefined
}
