package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/orbit-run/orbit/sdk/go/client"
)

func ExampleClient_Submit() {
	c, err := client.New("https://orbit.example.com", "orb_…")
	if err != nil {
		log.Fatal(err)
	}
	// The key comes from what the task is for: submitting the same order again, from anywhere, gives the same receipt.
	receipt, err := c.Submit(context.Background(), "order-8841-welcome", client.Submission{
		Queue:   "mail",
		Type:    "mail.welcome",
		Payload: client.JSON(map[string]string{"to": "ada@example.com"}),
	})
	var refusal *client.Problem
	switch {
	case err == nil:
		fmt.Println("accepted:", receipt.TaskID)
	case errors.As(err, &refusal):
		fmt.Println("refused:", refusal.Code)
	default:
		fmt.Println("nobody knows; submit it again with the same key:", err)
	}
}

func ExampleClient_Tasks() {
	c, err := client.New("https://orbit.example.com", "orb_…")
	if err != nil {
		log.Fatal(err)
	}
	for task, err := range c.Tasks(context.Background(), client.TaskFilter{State: "review"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(task.ID, task.Type)
	}
}
