package published

// Root is the path of the module in the root of this repository.
const Root = "github.com/retryhttp/retryhttp"

// Nested are the directories of the other modules that users import. They are released together with the root,
// and under the same number.
var Nested = []string{"otelretry", "redisbudget", "retrylab"}
