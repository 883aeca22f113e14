// What packages take from npm's abort-controller.
module.exports = { AbortController, AbortSignal, default: AbortController };
