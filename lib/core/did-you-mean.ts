// did-you-mean.ts: the known name that a misspelled one is probably meant to be.

/** Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`, case ignored. */
function distance(a: string, b: string): number {
  const [from, to] = [a.toLowerCase(), b.toLowerCase()]
  let [before, last] = [[] as number[], Array.from({ length: to.length + 1 }, (_, i) => i)]
  for (let i = 1; i <= from.length; i++) {
    const row = [i]
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1]
      row[j] = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + Number(!same))
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1])
        row[j] = Math.min(row[j]!, before[j - 2]! + 1)
    }
    ;[before, last] = [last, row]
  }
  return last[to.length]!
}

/** Characters of a name that are compared. */
const maxLength = 64

/** The known name nearest to `name`; undefined when more than a third of it would have to change. */
export function nearestName(name: string, known: Iterable<string>): string | undefined {
  const given = name.slice(0, maxLength)
  let [nearest, fewest] = [undefined as string | undefined, Math.floor(given.length / 3) + 1]
  for (const candidate of known) {
    if (Math.abs(candidate.length - given.length) >= fewest) continue
    const edits = distance(given, candidate)
    if (edits < fewest) [nearest, fewest] = [candidate, edits]
  }
  return nearest
}

/** ` (did you mean 'batchSize'?)` for the end of a message; '' when no known name is near. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const nearest = nearestName(name, known)
  return nearest === undefined ? '' : ` (did you mean '${nearest}'?)`
}
