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

/** Options by the names that PEFT, PyTorch, transformers and Keras give them, in lower case without underscores. */
const aliases: Readonly<Record<string, readonly string[]>> = {
  lr: ['learningRate', 'optimizer.learningRate'],
  learningrate: ['learningRate', 'optimizer.learningRate'],
  betas: ['beta1 and beta2', 'optimizer.beta1 and optimizer.beta2'],
  eps: ['epsilon', 'optimizer.epsilon'],
  weightdecay: ['weightDecay', 'optimizer.weightDecay'],
  wd: ['weightDecay', 'optimizer.weightDecay'],
  momentum: ['momentum', 'optimizer.momentum'],
  r: ['rank'],
  loraalpha: ['alpha'],
  loradropout: ['dropout'],
  usedora: ['method'],
  userslora: ['rslora'],
  gradaccum: ['accumulate'],
  gradientaccumulationsteps: ['accumulate'],
  perdevicetrainbatchsize: ['batchSize'],
  numepochs: ['epochs'],
  numtrainepochs: ['epochs'],
  maxgradnorm: ['maxNorm'],
  clipnorm: ['maxNorm'],
  gradclip: ['maxNorm'],
  criterion: ['loss'],
  lossfn: ['loss'],
  lrscheduler: ['schedule'],
  lrschedulertype: ['schedule'],
  scheduler: ['schedule'],
  warmup: ['warmup', 'schedule.warmup'],
  warmupsteps: ['warmup', 'schedule.warmup'],
  numwarmupsteps: ['warmup', 'schedule.warmup'],
  mixedprecision: ['precision'],
  validationdata: ['validation'],
  valdata: ['validation'],
  evaldataset: ['validation'],
  earlystopping: ['patience'],
  restorebestweights: ['keepBest'],
  resumefromcheckpoint: ['resume'],
  device: ['device', 'backend'],
}

/** As {@link didYouMean} for names of options, which may also be those of other libraries: `lr`, `weight_decay`. */
export function didYouMeanOption(name: string, known: readonly string[]): string {
  const plain = (text: string): string => text.replaceAll('_', '').toLowerCase()
  const given = plain(name)
  const same = known.find(candidate => plain(candidate) === given)
  const others = Object.hasOwn(aliases, given) ? aliases[given]! : []
  const alias = others.find(candidate => known.includes(candidate.split(/[. ]/)[0]!))
  const meant = same ?? alias
  return meant === undefined ? didYouMean(name, known) : ` (did you mean '${meant}'?)`
}
