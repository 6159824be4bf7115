package integrations_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream/eventstreamapi"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

const eventStreamOfAWS = "application/vnd.amazon.eventstream"

func Example_bedrock() {
	server := streaming(stream(eventStreamOfAWS, throttledBedrock), stream(eventStreamOfAWS, answerOfBedrock))
	defer server.Close()

	client := newBedrock(s3Config(server.URL), bedrockPolicy)
	output, err := client.ConverseStream(context.Background(), questionToBedrock)
	if err != nil {
		fmt.Println(err)
		return
	}
	events := output.GetStream()
	defer events.Close()
	for event := range events.Events() {
		if delta, ok := event.(*types.ConverseStreamOutputMemberContentBlockDelta); ok {
			fmt.Print(delta.Value.Delta.(*types.ContentBlockDeltaMemberText).Value)
		}
	}
	fmt.Println(events.Err())
	// Output: to be, or not to be<nil>
}

// newBedrock leaves retries to the Transport, as newS3 does.
func newBedrock(config aws.Config, policy retryhttp.Policy) *bedrockruntime.Client {
	return bedrockruntime.NewFromConfig(config, func(o *bedrockruntime.Options) {
		o.HTTPClient = &http.Client{
			Transport:     retryhttp.New(nil, policy),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		o.Retryer = aws.NopRetryer{}
	})
}

// A conversation changes nothing at the server, although it is a POST. The first event names its type in
// clear text.
var bedrockPolicy = retryhttp.Policy{
	PeekBytes:      4096,
	AttemptTimeout: time.Minute,      // to the first event
	StallTimeout:   time.Minute,      // between two events
	MaxElapsed:     10 * time.Minute, // the signature's date
	Idempotent: func(req *http.Request) bool {
		return strings.HasSuffix(req.URL.Path, "/converse-stream") || retryhttp.Idempotent(req)
	},
	Classify: func(a retryhttp.Attempt) retryhttp.Class {
		for _, exception := range []string{"throttlingException", "serviceUnavailableException", "internalServerException"} {
			if bytes.Contains(a.Peek, []byte(":exception-type")) && bytes.Contains(a.Peek, []byte(exception)) {
				return retryhttp.Retryable
			}
		}
		return retryhttp.Classify(a)
	},
}

var questionToBedrock = &bedrockruntime.ConverseStreamInput{
	ModelId: aws.String("model-17"),
	Messages: []types.Message{{
		Role:    types.ConversationRoleUser,
		Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: "How does it go on?"}},
	}},
}

var (
	throttledBedrock = awsEvent(eventstreamapi.ExceptionMessageType, eventstreamapi.ExceptionTypeHeader,
		"throttlingException", `{"message": "Too many requests"}`)
	answerOfBedrock = strings.Join([]string{
		awsEvent(eventstreamapi.EventMessageType, eventstreamapi.EventTypeHeader, "messageStart", `{"role": "assistant"}`),
		awsEvent(eventstreamapi.EventMessageType, eventstreamapi.EventTypeHeader, "contentBlockDelta",
			`{"contentBlockIndex": 0, "delta": {"text": "to be, "}}`),
		awsEvent(eventstreamapi.EventMessageType, eventstreamapi.EventTypeHeader, "contentBlockDelta",
			`{"contentBlockIndex": 0, "delta": {"text": "or not to be"}}`),
		awsEvent(eventstreamapi.EventMessageType, eventstreamapi.EventTypeHeader, "messageStop", `{"stopReason": "end_turn"}`),
	}, "")
)

// awsEvent returns a message of AWS's event streams.
func awsEvent(messageType, typeHeader, name, payload string) string {
	message := eventstream.Message{Payload: []byte(payload)}
	message.Headers.Set(eventstreamapi.MessageTypeHeader, eventstream.StringValue(messageType))
	message.Headers.Set(typeHeader, eventstream.StringValue(name))
	message.Headers.Set(eventstreamapi.ContentTypeHeader, eventstream.StringValue("application/json"))
	var encoded bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&encoded, message); err != nil {
		panic(err)
	}
	return encoded.String()
}

func TestBedrockStreamThatFailsAtOnceIsSentAgain(t *testing.T) {
	requireOneRetry(t, eventStreamOfAWS, answerOfBedrock, throttledBedrock, func(t *testing.T, url string) {
		output, err := newBedrock(s3Config(url), soon(bedrockPolicy)).ConverseStream(t.Context(), questionToBedrock)
		require.NoError(t, err)
		events := output.GetStream()
		var seen []string
		for event := range events.Events() {
			seen = append(seen, strings.TrimPrefix(fmt.Sprintf("%T", event), "*types.ConverseStreamOutputMember"))
		}
		require.NoError(t, events.Err())
		require.NoError(t, events.Close())
		require.Equal(t, []string{"MessageStart", "ContentBlockDelta", "ContentBlockDelta", "MessageStop"}, seen)
	})
}
